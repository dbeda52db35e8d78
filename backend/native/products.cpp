#include <ATen/ops/dot.h>
#include <ATen/ops/vdot.h>

#include "backend/native/kernels.h"
#include "backend/ops/op_registry.h"
#include "backend/recording/tracer.h"

// The CPU's kernels turn conjugate views into each other's op, and may return
// one. A trace holds no conjugate results, so that is done before it is recorded.
namespace lazyplug::native {
namespace {

at::Tensor record(const OpInfo& op, const at::Tensor& self, const at::Tensor& other) {
  const auto read = [&](PredictedCall& call) { return call.add(self) && call.add(other); };
  if (auto predicted = predict(op, self, read)) {
    return std::move(predicted->outputs.front());
  }
  c10::Stack stack{self, other};
  trace_unpredicted(op, &stack);
  return stack.back().toTensor();
}

} // namespace

at::Tensor dot(const at::Tensor& self, const at::Tensor& other) {
  static const OpInfo& op = op_info("aten::dot", "");
  if (self.is_conj()) {
    return other.is_conj() ? at::dot(self.conj(), other.conj()).conj() : at::vdot(self.conj(), other);
  }
  return other.is_conj() ? at::vdot(other.conj(), self) : record(op, self, other);
}

at::Tensor vdot(const at::Tensor& self, const at::Tensor& other) {
  static const OpInfo& op = op_info("aten::vdot", "");
  if (!self.is_complex()) {
    return at::dot(self, other);
  }
  if (self.is_conj()) {
    return other.is_conj() ? at::vdot(other.conj(), self.conj()) : at::dot(self.conj(), other);
  }
  return other.is_conj() ? at::dot(self, other.conj()).conj() : record(op, self, other);
}

} // namespace lazyplug::native
