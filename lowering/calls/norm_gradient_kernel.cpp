#include "lowering/calls/norm_gradient_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <array>
#include <vector>

#include "kernels/norm_gradient.h"
#include "lowering/calls/plain_tensors.h"

namespace lazyplug {
namespace {

constexpr const char* kName = "aten::native_layer_norm_backward";
constexpr size_t kNumArgs = 8; // gradient, input, sizes, mean, rstd, weight, bias, which results are wanted
constexpr int64_t kMinRow = 16;
constexpr int64_t kMaxRow = 16384;

using Arguments = c10::ArrayRef<c10::IValue>;

bool is_computable(Arguments arguments) {
  for (const size_t i : {0, 1, 3, 4}) {
    if (!is_contiguous_float(arguments[i])) {
      return false;
    }
  }
  const at::Tensor& x = arguments[1].toTensor();
  if (x.dim() == 0 || x.numel() == 0 || x.sizes() != arguments[0].toTensor().sizes()) {
    return false;
  }
  const int64_t n = x.sizes().back();
  const int64_t num_rows = x.numel() / n;
  const bool has_norms = arguments[3].toTensor().numel() == num_rows && arguments[4].toTensor().numel() == num_rows;
  const bool has_weight = is_there(arguments[5]);
  return n >= kMinRow && n <= kMaxRow && has_norms && arguments[2].toDimVector() == c10::DimVector{n} &&
         (!has_weight || (is_contiguous_float(arguments[5]) && arguments[5].toTensor().numel() == n));
}

float* data_of(const at::Tensor& result) {
  return result.defined() ? result.mutable_data_ptr<float>() : nullptr;
}

} // namespace

bool is_norm_gradient(const OpInfo& op) {
  static const bool has = has_functions();
  return has && op.name() == kName;
}

bool run_norm_gradient(c10::Stack& stack) {
  const Arguments arguments = torch::jit::last(stack, kNumArgs);
  if (!is_computable(arguments)) {
    return false;
  }
  const at::Tensor& x = arguments[1].toTensor();
  const int64_t n = x.sizes().back();
  const auto is_wanted = arguments[7].toBoolList();
  std::array<at::Tensor, 3> results;
  for (size_t i = 0; i < results.size(); ++i) {
    if (is_wanted[i]) {
      results[i] = at::detail::empty_cpu(i == 0 ? x.sizes() : c10::IntArrayRef(n), at::kFloat);
    }
  }
  const std::vector<float> ones(is_there(arguments[5]) ? 0 : n, 1);
  const auto data = [&](size_t i) { return arguments[i].toTensor().const_data_ptr<float>(); };
  kernels::run(
      kernels::NormGradient{
          x.numel() / n,
          n,
          data(0),
          data(1),
          data(3),
          data(4),
          ones.empty() ? data(5) : ones.data(),
          data_of(results[0]),
          data_of(results[1]),
          data_of(results[2])});
  torch::jit::drop(stack, kNumArgs);
  for (at::Tensor& result : results) {
    stack.emplace_back(std::move(result));
  }
  return true;
}

void norm_gradient(c10::Stack& stack) {
  static const auto* op = new auto(c10::Dispatcher::singleton().findSchemaOrThrow(kName, ""));
  if (!run_norm_gradient(stack)) {
    op->callBoxed(stack);
  }
}

namespace {

void norm_gradient_op(const c10::OperatorHandle& /*op*/, c10::Stack* stack) {
  norm_gradient(*stack);
}

TORCH_LIBRARY_FRAGMENT(lazyplug, m) {
  m.def(
      "norm_gradient(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor mean, Tensor rstd, Tensor? weight, "
      "Tensor? bias, bool[] output_mask) -> (Tensor, Tensor, Tensor)",
      torch::CppFunction::makeFromBoxedFunction<&norm_gradient_op>());
}

} // namespace
} // namespace lazyplug
