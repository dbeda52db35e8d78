#include "common/intra_op_threads.h"

#include <ATen/Parallel.h>

#include <dlfcn.h>

namespace lazyplug {
namespace {

struct Setters {
  void (*openmp)(int) = nullptr;
  int (*mkl)(int) = nullptr; // null: PyTorch was built without it
};

// The OpenMP library is PyTorch's own, whatever its name; so it is looked for among what PyTorch depends on.
Setters find_setters() {
  Dl_info torch{};
  if (dladdr(reinterpret_cast<const void*>(&at::get_parallel_info), &torch) == 0) {
    return {};
  }
  void* library = dlopen(torch.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) {
    return {};
  }
  return {
      reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads")),
      reinterpret_cast<int (*)(int)>(dlsym(library, "MKL_Set_Num_Threads_Local"))};
}

} // namespace

bool set_intra_op_threads(int num_threads) {
  static const Setters setters = find_setters();
  // The first loop that a library runs on a thread sets the number anew: each library has a flag of its own for that,
  // and kernels of ours are in this one.
  at::internal::lazy_init_num_threads();
  if (!setters.openmp) {
    return false;
  }
  setters.openmp(num_threads);
  if (setters.mkl) {
    setters.mkl(num_threads);
  }
  return true;
}

IntraOpThreadsScope::IntraOpThreadsScope() : before_(at::get_num_threads()), current_(before_) {}

} // namespace lazyplug
