#include <ATen/ops/dot.h>
#include <ATen/ops/vdot.h>

#include "backend/native/kernels.h"
#include "backend/op_registry.h"
#include "backend/tracer.h"

// The CPU's kernels turn conjugate views into each other's op, and may return
// one. A trace holds no conjugate results, so that is done before it is recorded.
namespace lazyplug::native {
namespace {

at::Tensor record(const char* name, const at::Tensor& self, const at::Tensor& other) {
  c10::Stack stack{self, other};
  trace(op_info(name, ""), &stack);
  return stack.back().toTensor();
}

} // namespace

at::Tensor dot(const at::Tensor& self, const at::Tensor& other) {
  if (self.is_conj()) {
    return other.is_conj() ? at::dot(self.conj(), other.conj()).conj() : at::vdot(self.conj(), other);
  }
  return other.is_conj() ? at::vdot(other.conj(), self) : record("aten::dot", self, other);
}

at::Tensor vdot(const at::Tensor& self, const at::Tensor& other) {
  if (!self.is_complex()) {
    return at::dot(self, other);
  }
  if (self.is_conj()) {
    return other.is_conj() ? at::vdot(other.conj(), self.conj()) : at::dot(self.conj(), other);
  }
  return other.is_conj() ? at::dot(self, other.conj()).conj() : record("aten::vdot", self, other);
}

} // namespace lazyplug::native
