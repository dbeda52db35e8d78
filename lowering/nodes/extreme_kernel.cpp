#include "lowering/nodes/extreme_kernel.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "lowering/calls/small_extreme.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;

class ExtremeKernel {
 public:
  ExtremeKernel(const OpInfo& op, const SmallExtreme& extreme, const Geometry& input, const Geometry& result)
      : op_(op), extreme_(extreme), input_(input), result_(result) {}

  void operator()(c10::Stack& stack) const {
    const auto self = stack.end() - static_cast<std::ptrdiff_t>(op_.num_args());
    const auto* input = self->unsafeToTensorImpl();
    if (!input_.matches_apart_from_offset(*input)) {
      return op_.call(stack);
    }
    auto [first, second] = extreme_.run(result_.sizes, input->data());
    if (!first.defined()) {
      return op_.call(stack);
    }
    torch::jit::drop(stack, op_.num_args());
    stack.emplace_back(std::move(first));
    if (second.defined()) {
      stack.emplace_back(std::move(second));
    }
  }

 private:
  const OpInfo& op_;
  const SmallExtreme extreme_;
  const Geometry& input_;
  const Geometry& result_; // the first
};

} // namespace

std::function<void(c10::Stack&)> extreme_kernel(const JitNode& node, const OpInfo& op, TypeGeometries& geometries) {
  const auto* search = SmallExtreme::find(op);
  const Geometry* input = search ? geometries.find(*node.input(0)->type()) : nullptr;
  const auto dim = node.inputs().size() > 1 ? torch::jit::toIValue(node.input(1)) : std::optional(c10::IValue());
  const auto extreme = input && dim ? SmallExtreme::plan(*search, *input, *dim) : std::nullopt;
  const Geometry* result = extreme ? geometries.find(*node.output(0)->type()) : nullptr;
  const auto lies_as_expected = [&](const torch::jit::Value* output) {
    const Geometry* layout = geometries.find(*output->type());
    return layout && layout->sizes == result->sizes && layout->is_contiguous() &&
           layout->numel() == extreme->result_numel();
  };
  if (!result || !std::all_of(node.outputs().begin(), node.outputs().end(), lies_as_expected)) {
    return nullptr;
  }
  return ExtremeKernel(op, *extreme, *input, *result);
}

} // namespace lazyplug
