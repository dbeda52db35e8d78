#include "lowering/extreme_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>

#include "kernels/extremes.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;

struct SearchOp {
  const char* name;
  enum class Returns : uint8_t { kPlaces, kValuesAndPlaces, kTruth } returns;
  bool is_least; // of truths: all are true if the least one is
};

constexpr SearchOp kSearchOps[] = {
    {"aten::argmax", SearchOp::Returns::kPlaces, false},
    {"aten::argmin", SearchOp::Returns::kPlaces, true},
    {"aten::max.dim", SearchOp::Returns::kValuesAndPlaces, false},
    {"aten::min.dim", SearchOp::Returns::kValuesAndPlaces, true},
    {"aten::all", SearchOp::Returns::kTruth, true},
    {"aten::all.dim", SearchOp::Returns::kTruth, true},
    {"aten::_is_all_true", SearchOp::Returns::kTruth, true},
    {"aten::any", SearchOp::Returns::kTruth, false},
    {"aten::any.dim", SearchOp::Returns::kTruth, false},
    {"aten::_is_any_true", SearchOp::Returns::kTruth, false},
};

const SearchOp* find_search_op(const OpInfo& op) {
  const auto* found = std::find_if(std::begin(kSearchOps), std::end(kSearchOps), [&](const SearchOp& each) {
    return op.name() == each.name;
  });
  return found == std::end(kSearchOps) ? nullptr : found;
}

// Over the argument `dim`, if there is one and it is given; else over all. Nothing if nobody knows.
std::optional<kernels::Search> plan(const JitNode& node, const Geometry& input, bool is_least) {
  kernels::Search search{1, input.numel(), 1, is_least};
  const auto dim = node.inputs().size() > 1 ? torch::jit::toIValue(node.input(1)) : std::optional(c10::IValue());
  if (!dim || !(dim->isNone() || dim->isInt())) {
    return std::nullopt;
  }
  const auto num_dims = static_cast<int64_t>(input.sizes.size());
  if (dim->isNone() || num_dims == 0) {
    return search;
  }
  const int64_t searched = dim->toInt() < 0 ? dim->toInt() + num_dims : dim->toInt();
  search.searched = input.sizes[searched];
  for (int64_t i = 0; i < num_dims; ++i) {
    if (i != searched) {
      (i < searched ? search.outer : search.inner) *= input.sizes[i];
    }
  }
  return search;
}

class ExtremeKernel {
 public:
  ExtremeKernel(const OpInfo& op, SearchOp::Returns returns, const kernels::Search& search, const JitNode& node)
      : op_(op), returns_(returns), search_(search), num_outputs_(node.outputs().size()) {}

  bool lie_as_expected(const JitNode& node, TypeGeometries& geometries) {
    input_ = geometries.find(*node.input(0)->type());
    result_ = geometries.find(*node.output(0)->type());
    const auto is_good = [&](const torch::jit::Value* output) {
      const Geometry* layout = geometries.find(*output->type());
      return layout && layout->sizes == result_->sizes && layout->is_contiguous() &&
             layout->numel() == search_.outer * search_.inner;
    };
    return result_ && std::all_of(node.outputs().begin(), node.outputs().end(), is_good);
  }

  void operator()(c10::Stack& stack) const {
    const auto self = stack.end() - static_cast<std::ptrdiff_t>(op_.num_args());
    const auto* input = self->unsafeToTensorImpl();
    if (!input_->matches_apart_from_offset(*input)) {
      return op_.call(stack);
    }
    at::Tensor first = at::detail::empty_cpu(result_->sizes, result_->dtype);
    at::Tensor second;
    if (returns_ == SearchOp::Returns::kTruth) {
      kernels::test(
          search_.outer,
          search_.searched,
          search_.is_least,
          static_cast<const bool*>(input->data()),
          first.mutable_data_ptr<bool>());
    } else {
      second = num_outputs_ == 2 ? at::detail::empty_cpu(result_->sizes, at::kLong) : first;
      void* values = num_outputs_ == 2 ? first.mutable_data_ptr() : nullptr;
      kernels::search(search_, input_->dtype, input->data(), values, second.mutable_data_ptr<int64_t>());
    }
    torch::jit::drop(stack, op_.num_args());
    stack.emplace_back(std::move(first));
    if (num_outputs_ == 2) {
      stack.emplace_back(std::move(second));
    }
  }

 private:
  const OpInfo& op_;
  const SearchOp::Returns returns_;
  const kernels::Search search_;
  const size_t num_outputs_;
  const Geometry* input_ = nullptr;
  const Geometry* result_ = nullptr; // the first
};

} // namespace

std::function<void(c10::Stack&)> extreme_kernel(const JitNode& node, const OpInfo& op, TypeGeometries& geometries) {
  const SearchOp* search_op = find_search_op(op);
  const Geometry* input = search_op ? geometries.find(*node.input(0)->type()) : nullptr;
  // Larger ones are shared by several threads.
  if (!input || input->numel() == 0 || input->numel() >= at::internal::GRAIN_SIZE || input->has_bits() ||
      !input->is_contiguous()) {
    return nullptr;
  }
  const auto search = plan(node, *input, search_op->is_least);
  const bool is_truth = search_op->returns == SearchOp::Returns::kTruth;
  const bool is_possible = is_truth ? input->dtype == at::kBool && search && search->inner == 1
                                    : kernels::can_search(input->dtype) && search.has_value();
  if (!is_possible) {
    return nullptr;
  }
  ExtremeKernel kernel(op, search_op->returns, *search, node);
  return kernel.lie_as_expected(node, geometries) ? std::function<void(c10::Stack&)>(kernel) : nullptr;
}

} // namespace lazyplug
