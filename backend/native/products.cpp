#include <ATen/ops/dot.h>
#include <ATen/ops/vdot.h>

#include "backend/native/kernels.h"
#include "backend/ops/op_registry.h"
#include "backend/recording/fast_kernels.h"

// The CPU's kernels turn conjugate views into each other's op, and may return
// one. A trace holds no conjugate results, so that is done before it is recorded.
namespace lazyplug::native {
namespace {

template <typename Op>
at::Tensor call(const OpInfo& op, const at::Tensor& self, const at::Tensor& other) {
  return fast_kernels::fast_kernel<Op>(op)(self, other);
}

} // namespace

at::Tensor dot(const at::Tensor& self, const at::Tensor& other) {
  static const OpInfo& op = op_info("aten::dot", "");
  if (self.is_conj()) {
    return other.is_conj() ? at::dot(self.conj(), other.conj()).conj() : at::vdot(self.conj(), other);
  }
  return other.is_conj() ? at::vdot(other.conj(), self) : call<at::_ops::dot>(op, self, other);
}

at::Tensor vdot(const at::Tensor& self, const at::Tensor& other) {
  static const OpInfo& op = op_info("aten::vdot", "");
  if (!self.is_complex()) {
    return at::dot(self, other);
  }
  if (self.is_conj()) {
    return other.is_conj() ? at::vdot(other.conj(), self.conj()) : at::dot(self.conj(), other);
  }
  return other.is_conj() ? at::dot(self, other.conj()).conj() : call<at::_ops::vdot>(op, self, other);
}

} // namespace lazyplug::native
