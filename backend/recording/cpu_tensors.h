#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/MaybeOwned.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/execution/lazy_storage.h"

namespace lazyplug {

// What is done with memory. Before it is written or shared, pending work that reads it runs.
enum class Access : uint8_t {
  kRead,
  kWrite, // who shares it keeps what was there
  kShare, // and may write it
};

// A CPU tensor over the memory of a lazy one, which is made available first.
at::Tensor cpu_alias(const at::Tensor& tensor, Access access);
// The same for a kernel of ours or PyTorch's that reads it now: the next one may be given the same CPU tensor, so
// nobody may keep it, or change what it is.
at::Tensor cpu_operand(const at::Tensor& tensor);

// A lazy tensor over the memory of a strided CPU tensor that nobody else holds.
at::Tensor adopt_cpu_tensor(const at::Tensor& tensor, c10::DeviceIndex device);

// The same tensor, if nobody else knows it nor its storage, moved to the device: cheaper than another one.
at::Tensor move_to_device(at::Tensor cpu, c10::DeviceIndex device);

// The tensors of one call that runs on the CPU: lazy ones go in, and what comes
// out is lazy again. Tensors and storages that are the same on one side are the
// same on the other, so writes, views and arguments that are returned need no
// copies.
class CpuTensors {
 public:
  // `may_write`: the op may write a tensor or change what it is.
  CpuTensors(c10::DeviceIndex device, bool may_write) : device_(device), may_write_(may_write) {}

  // The CPU tensor that stands for an argument: itself if it is not lazy. Those that are written come first: their
  // memory is made private, and what was exported of it stays with the old one, which only read ones keep.
  at::Tensor to_cpu(at::Tensor tensor, bool written) {
    return to_cpu(c10::MaybeOwned<at::Tensor>::owned(std::move(tensor)), written);
  }
  // The same for one that lives longer than this.
  at::Tensor borrowed_to_cpu(const at::Tensor& tensor, bool written = false) {
    return to_cpu(c10::MaybeOwned<at::Tensor>::borrowed(tensor), written);
  }
  // After the call: the op may have resized what it has written, or its storage,
  // or given it another one.
  void update_written();
  // A result of the op: an argument, a view of one, or a new tensor.
  at::Tensor to_lazy(at::Tensor tensor);
  // Of the largest argument.
  int64_t num_elements() const {
    return num_elements_;
  }

 private:
  struct TensorPair {
    c10::MaybeOwned<at::Tensor> lazy;
    at::Tensor cpu;
  };
  // Both are held: an op may let go of a part of a tensor, and another storage
  // take its address.
  struct StoragePair {
    c10::Storage lazy;
    c10::Storage cpu;
  };

  template <typename Predicate>
  const TensorPair* find(const Predicate& predicate) const {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(), predicate);
    return found == tensors_.end() ? nullptr : found;
  }
  at::Tensor to_cpu(c10::MaybeOwned<at::Tensor> tensor, bool written);
  at::Tensor part_to_cpu(const at::Tensor& part, bool written);
  at::Tensor convert_to_cpu(const at::Tensor& tensor, bool written);
  at::Tensor strided_to_lazy(const at::Tensor& cpu);
  c10::Storage lazy_storage(const at::Tensor& cpu);
  c10::Storage current_storage(const at::Tensor& cpu);
  void update(const at::Tensor& lazy, const at::Tensor& cpu);

  const c10::DeviceIndex device_;
  const bool may_write_;
  int64_t num_elements_ = 0;
  // The arguments. Ops treat a tensor that is passed twice in its own way.
  c10::SmallVector<TensorPair, 4> tensors_;
  std::vector<TensorPair> written_;
  // Of parts of arguments, of arguments that may change, and of results.
  c10::SmallVector<StoragePair, 4> storages_;
};

} // namespace lazyplug
