#include "test/cpp/lowering/test_ops.h"

#include <ATen/Functions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace lazyplug {
namespace {

std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> watched;
int peak = 0;
c10::DispatchKeySet excluded_keys;

at::Tensor watch(const at::Tensor& self) {
  at::Tensor result = self.clone();
  watched.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(result.storage().unsafeGetStorageImpl()));
  peak = std::max(peak, Watched::alive());
  return result;
}

at::Tensor same(const at::Tensor& self) {
  return self;
}

at::Tensor keys(const at::Tensor& self) {
  excluded_keys = c10::impl::tls_local_dispatch_key_set().excluded_;
  return self.clone();
}

at::Tensor strides(const at::Tensor& self) {
  return at::tensor(self.strides());
}

// Two matrices that lie column by column.
std::vector<at::Tensor> transposed_parts(const at::Tensor& self) {
  const auto column_by_column = [](const at::Tensor& matrix) { return matrix.t().contiguous().t(); };
  return {column_by_column(self), column_by_column(self + 1)};
}

at::Tensor same_tensors(const at::Tensor& self, const at::Tensor& other) {
  return at::full({}, self.is_same(other), at::kBool);
}

at::Tensor fail(const at::Tensor& /*self*/) {
  TORCH_CHECK_INDEX(false, "index out of range, on purpose");
}

at::Tensor fail_std(const at::Tensor& /*self*/) {
  throw std::out_of_range("not ours, on purpose");
}

at::Tensor& fail_(at::Tensor& self) {
  fail(self);
  return self;
}

TORCH_LIBRARY(lazyplug_test, m) {
  m.def("watch(Tensor self) -> Tensor", watch);
  m.def("same(Tensor self) -> Tensor", same);
  m.def("keys(Tensor self) -> Tensor", keys);
  m.def("strides(Tensor self) -> Tensor", strides);
  m.def("transposed_parts(Tensor self) -> Tensor[]", transposed_parts);
  m.def("same_tensors(Tensor self, Tensor other) -> Tensor", same_tensors);
  m.def("fail(Tensor self) -> Tensor", fail);
  m.def("fail_std(Tensor self) -> Tensor", fail_std);
  m.def("fail_(Tensor(a!) self) -> Tensor(a!)", fail_);
}

} // namespace

int Watched::alive() {
  return static_cast<int>(
      std::count_if(watched.begin(), watched.end(), [](const auto& weak) { return weak.use_count() > 0; }));
}

int Watched::peak() {
  return lazyplug::peak;
}

void Watched::reset() {
  watched.clear();
  lazyplug::peak = 0;
}

c10::DispatchKeySet seen_excluded_keys() {
  return excluded_keys;
}

} // namespace lazyplug
