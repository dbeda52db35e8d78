#include "lowering/sum_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>

#include "kernels/sums.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;

// sum(self, dtype), sum.dim_IntList(self, dim, keepdim, dtype) and the same of the mean: whether a dtype is asked for.
bool names_dtype(const JitNode& node) {
  const auto dtype = torch::jit::toIValue(node.inputs().back());
  return !dtype || !dtype->isNone();
}

// Which dimensions are added up; nothing if nobody knows.
std::optional<std::vector<bool>> reduced_dims(const JitNode& node, size_t num_dims) {
  constexpr size_t kNumInputsWithDims = 4;
  if (node.inputs().size() != kNumInputsWithDims || num_dims == 0) { // of a number, dimension 0 is one, too
    return std::vector<bool>(num_dims, true);
  }
  const auto constant = torch::jit::toIValue(node.input(1));
  if (!constant || !(constant->isNone() || constant->isIntList())) {
    return std::nullopt;
  }
  const auto dims = constant->isNone() ? std::vector<int64_t>() : constant->toIntVector();
  std::vector<bool> reduced(num_dims, dims.empty());
  for (const int64_t dim : dims) {
    reduced.at(dim < 0 ? dim + static_cast<int64_t>(num_dims) : dim) = true;
  }
  return reduced;
}

// Nothing if the dimensions that are added up are not neighbours, or stand between others.
std::optional<kernels::Reduction> plan(c10::IntArrayRef sizes, const std::vector<bool>& reduced) {
  const auto first = std::find(reduced.begin(), reduced.end(), true) - reduced.begin();
  const auto last = reduced.rend() - std::find(reduced.rbegin(), reduced.rend(), true);
  kernels::Reduction reduction{1, 1, 1, false};
  for (std::ptrdiff_t dim = 0; dim < static_cast<std::ptrdiff_t>(sizes.size()); ++dim) {
    (dim < first ? reduction.outer : dim < last ? reduction.reduced : reduction.inner) *= sizes[dim];
    if (first < dim && dim < last && !reduced[dim] && sizes[dim] != 1) {
      return std::nullopt;
    }
  }
  const bool is_between = reduction.outer != 1 && reduction.inner != 1;
  return is_between || reduction.reduced <= 1 ? std::nullopt : std::optional(reduction);
}

class SumKernel {
 public:
  SumKernel(const OpInfo& op, kernels::Reduction reduction, const Geometry& input, const Geometry& result)
      : op_(op), reduction_(reduction), input_(input), result_(result) {}

  void operator()(c10::Stack& stack) const {
    const auto self = stack.end() - static_cast<std::ptrdiff_t>(op_.num_args());
    const auto* input = self->unsafeToTensorImpl();
    if (!input_.matches_apart_from_offset(*input)) {
      return op_.call(stack);
    }
    at::Tensor result = at::detail::empty_cpu(result_.sizes, result_.dtype);
    kernels::reduce(reduction_, result_.dtype, input->data(), result.mutable_data_ptr());
    torch::jit::drop(stack, op_.num_args());
    stack.emplace_back(std::move(result));
  }

 private:
  const OpInfo& op_;
  kernels::Reduction reduction_;
  const Geometry& input_;
  const Geometry& result_;
};

} // namespace

std::function<void(c10::Stack&)> sum_kernel(const JitNode& node, const OpInfo& op, TypeGeometries& geometries) {
  const bool is_mean = op.name() == "aten::mean" || op.name() == "aten::mean.dim";
  if (!is_mean && op.name() != "aten::sum" && op.name() != "aten::sum.dim_IntList") {
    return nullptr;
  }
  const Geometry* input = geometries.find(*node.input(0)->type());
  const Geometry* result = geometries.find(*node.output()->type());
  // Larger ones are shared by several threads.
  if (!input || !result || names_dtype(node) || input->numel() == 0 || input->numel() >= at::internal::GRAIN_SIZE ||
      (input->dtype != at::kFloat && input->dtype != at::kDouble) || input->dtype != result->dtype ||
      !input->is_contiguous() || !result->is_contiguous()) {
    return nullptr;
  }
  const auto dims = reduced_dims(node, input->sizes.size());
  auto reduction = dims ? plan(input->sizes, *dims) : std::nullopt;
  if (!reduction || reduction->outer * reduction->inner != result->numel()) {
    return nullptr;
  }
  reduction->is_mean = is_mean;
  return SumKernel(op, *reduction, *input, *result);
}

} // namespace lazyplug
