#include "lowering/sum_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "lowering/small_sum.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;

// sum(self, dtype), sum.dim_IntList(self, dim, keepdim, dtype) and the same of the mean.
constexpr size_t kNumInputsWithDims = 4;

// Whether a dtype is asked for.
bool names_dtype(const JitNode& node) {
  const auto dtype = torch::jit::toIValue(node.inputs().back());
  return !dtype || !dtype->isNone();
}

class SumKernel {
 public:
  SumKernel(const OpInfo& op, SmallSum sum, const Geometry& input, const Geometry& result)
      : op_(op), is_mean_(is_mean(op)), sum_(std::move(sum)), input_(input), result_(result) {}

  void operator()(c10::Stack& stack) const {
    const auto self = stack.end() - static_cast<std::ptrdiff_t>(op_.num_args());
    const auto* input = self->unsafeToTensorImpl();
    if (!input_.matches_apart_from_offset(*input)) {
      return op_.call(stack);
    }
    at::Tensor result = at::detail::empty_cpu(result_.sizes, result_.dtype);
    sum_.run(is_mean_, input->data(), result.mutable_data_ptr());
    torch::jit::drop(stack, op_.num_args());
    stack.emplace_back(std::move(result));
  }

 private:
  const OpInfo& op_;
  const bool is_mean_;
  const SmallSum sum_;
  const Geometry& input_;
  const Geometry& result_;
};

} // namespace

std::function<void(c10::Stack&)> sum_kernel(const JitNode& node, const OpInfo& op, TypeGeometries& geometries) {
  if (!is_sum(op)) {
    return nullptr;
  }
  const Geometry* input = geometries.find(*node.input(0)->type());
  const Geometry* result = geometries.find(*node.output()->type());
  const auto dims =
      node.inputs().size() == kNumInputsWithDims ? torch::jit::toIValue(node.input(1)) : std::optional(c10::IValue());
  if (!input || !result || !dims || names_dtype(node) || input->dtype != result->dtype || !result->is_contiguous()) {
    return nullptr;
  }
  auto sum = SmallSum::plan(*input, *dims);
  if (!sum || sum->result_numel() != result->numel()) {
    return nullptr;
  }
  return SumKernel(op, std::move(*sum), *input, *result);
}

} // namespace lazyplug
