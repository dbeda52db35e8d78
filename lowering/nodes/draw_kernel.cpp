#include "lowering/nodes/draw_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/exponential.h>

#include <limits>
#include <optional>

#include "kernels/extremes.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;

class DrawKernel {
 public:
  DrawKernel(const OpInfo& op, const Geometry& input, const Geometry& result)
      : op_(op), input_(input), result_(result) {}

  void operator()(c10::Stack& stack) const {
    const auto self = stack.end() - static_cast<std::ptrdiff_t>(op_.num_args());
    const auto* input = self->unsafeToTensorImpl();
    const bool is_drawn = input_.matches_apart_from_offset(*input) &&
                          (input_.dtype == at::kFloat ? are_good<float>(*input) : are_good<double>(*input));
    if (!is_drawn) {
      return op_.call(stack);
    }
    // The largest of probabilities that are divided by exponentially distributed numbers is each one as often as it is
    // to be: the algorithm of PyTorch's kernel, ATen/native/Distributions.cpp.
    at::Tensor times = at::detail::empty_cpu(input_.sizes, input_.dtype);
    times.exponential_(1, (self + 3)->toOptional<at::Generator>());
    input_.dtype == at::kFloat ? divide<float>(*input, times) : divide<double>(*input, times);
    at::Tensor places = at::detail::empty_cpu(result_.sizes, at::kLong);
    const kernels::Search search{num_rows(), row_length(), 1, /*is_least=*/false};
    kernels::search(search, input_.dtype, times.const_data_ptr(), nullptr, places.mutable_data_ptr<int64_t>());
    torch::jit::drop(stack, op_.num_args());
    stack.emplace_back(std::move(places));
  }

 private:
  int64_t row_length() const {
    return input_.sizes.back();
  }
  int64_t num_rows() const {
    return input_.numel() / row_length();
  }

  // Finite, not negative, and not all of a row 0.
  template <typename T>
  bool are_good(const c10::TensorImpl& input) const {
    const auto* from = static_cast<const T*>(input.data());
    for (int64_t row = 0; row < num_rows(); ++row, from += row_length()) {
      bool is_good = true;
      T largest = 0;
      for (int64_t i = 0; i < row_length(); ++i) {
        is_good &= from[i] >= 0 && from[i] < std::numeric_limits<T>::infinity();
        largest = from[i] > largest ? from[i] : largest;
      }
      if (!is_good || largest == 0) {
        return false;
      }
    }
    return true;
  }

  template <typename T>
  void divide(const c10::TensorImpl& input, at::Tensor& times) const {
    const auto* from = static_cast<const T*>(input.data());
    auto* to = times.mutable_data_ptr<T>();
    for (int64_t i = 0; i < input_.numel(); ++i) {
      to[i] = from[i] / to[i];
    }
  }

  const OpInfo& op_;
  const Geometry& input_;
  const Geometry& result_;
};

} // namespace

std::function<void(c10::Stack&)> draw_kernel(const JitNode& node, const OpInfo& op, TypeGeometries& geometries) {
  if (op.name() != "aten::multinomial") {
    return nullptr;
  }
  const Geometry* input = geometries.find(*node.input(0)->type());
  const Geometry* result = geometries.find(*node.output()->type());
  const auto num_samples = torch::jit::toIValue(node.input(1));
  // Larger ones are shared by several threads.
  const bool is_possible = input && result && num_samples && num_samples->isInt() && num_samples->toInt() == 1 &&
                           (input->dtype == at::kFloat || input->dtype == at::kDouble) && !input->has_bits() &&
                           input->is_contiguous() && input->numel() != 0 && input->numel() < at::internal::GRAIN_SIZE &&
                           result->is_contiguous() && result->numel() == input->numel() / input->sizes.back();
  return is_possible ? std::function<void(c10::Stack&)>(DrawKernel(op, *input, *result)) : nullptr;
}

} // namespace lazyplug
