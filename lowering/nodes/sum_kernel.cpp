#include "lowering/nodes/sum_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "lowering/calls/small_sum.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;

// Whether a dtype is asked for.
bool names_dtype(const JitNode& node) {
  const auto dtype = torch::jit::toIValue(node.inputs().back());
  return !dtype || !dtype->isNone();
}

class SumKernel {
 public:
  SumKernel(const OpInfo& op, const SmallSum::Op& row, SmallSum sum, const Geometry& input, const Geometry& result)
      : op_(op), row_(row), sum_(std::move(sum)), input_(input), result_(result) {}

  void operator()(c10::Stack& stack) const {
    const auto self = stack.end() - static_cast<std::ptrdiff_t>(op_.num_args());
    const auto* input = self->unsafeToTensorImpl();
    if (!input_.matches_apart_from_offset(*input) || !SmallSum::makes_it(row_, self[1])) {
      return op_.call(stack);
    }
    at::Tensor result = at::detail::empty_cpu(result_.sizes, result_.dtype);
    sum_.run(input->data(), result.mutable_data_ptr());
    torch::jit::drop(stack, op_.num_args());
    stack.emplace_back(std::move(result));
  }

 private:
  const OpInfo& op_;
  const SmallSum::Op& row_;
  const SmallSum sum_;
  const Geometry& input_;
  const Geometry& result_;
};

} // namespace

std::function<void(c10::Stack&)> sum_kernel(const JitNode& node, const OpInfo& op, TypeGeometries& geometries) {
  const auto* row = SmallSum::find(op);
  if (!row) {
    return nullptr;
  }
  const Geometry* input = geometries.find(*node.input(0)->type());
  const Geometry* result = geometries.find(*node.output()->type());
  const auto dims = row->dims != 0 ? torch::jit::toIValue(node.input(row->dims)) : std::optional(c10::IValue());
  if (!input || !result || !dims || names_dtype(node) || input->dtype != result->dtype || !result->is_contiguous()) {
    return nullptr;
  }
  auto sum = SmallSum::plan(row->makes, *input, *dims);
  if (!sum || sum->result_numel() != result->numel()) {
    return nullptr;
  }
  return SumKernel(op, *row, std::move(*sum), *input, *result);
}

} // namespace lazyplug
