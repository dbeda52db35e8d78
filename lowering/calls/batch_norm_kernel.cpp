#include "lowering/calls/batch_norm_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "kernels/batch_norm.h"
#include "kernels/trial_numbers.h"
#include "lowering/calls/plain_tensors.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// Of native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps).
constexpr size_t kNumTensors = 5;

// Without memory for the results. That of running statistics is written later.
std::optional<kernels::BatchNorm> plan_batch_norm(Arguments arguments) {
  if (!kernels::has_batch_norm() || !is_contiguous_float(arguments[0]) || !arguments[5].toBool()) {
    return std::nullopt;
  }
  const at::Tensor& input = arguments[0].toTensor();
  const bool is_usual = input.dim() > 2 && input.numel() > 0 && input.size(1) > 1 &&
                        input.numel() > input.size(0) * input.size(1) && has_strides_of_new(input);
  if (!is_usual) {
    return std::nullopt;
  }
  const int64_t num_channels = input.size(1);
  std::array<float*, kNumTensors> of_channels{};
  for (size_t i = 1; i < kNumTensors; ++i) {
    if (!is_there(arguments[i])) {
      continue;
    }
    const at::Tensor& tensor = arguments[i].toTensor();
    if (!is_contiguous_float(arguments[i]) || tensor.numel() != num_channels) {
      return std::nullopt;
    }
    of_channels[i] = tensor.mutable_data_ptr<float>();
  }
  return kernels::BatchNorm{
      input.size(0),
      num_channels,
      input.numel() / (input.size(0) * num_channels),
      input.const_data_ptr<float>(),
      of_channels[1],
      of_channels[2],
      static_cast<float>(arguments[6].toDouble()),
      arguments[7].toDouble(),
      of_channels[3],
      of_channels[4]};
}

using Results = std::array<at::Tensor, 3>;

Results compute(kernels::BatchNorm norm, const at::Tensor& input) {
  Results results{
      at::detail::empty_cpu(input.sizes(), at::kFloat),
      at::detail::empty_cpu(norm.num_channels, at::kFloat),
      at::detail::empty_cpu(norm.num_channels, at::kFloat)};
  norm.result = results[0].mutable_data_ptr<float>();
  norm.mean = results[1].mutable_data_ptr<float>();
  norm.rstd = results[2].mutable_data_ptr<float>();
  run(norm);
  return results;
}

bool has_bits_of_pytorch(const OpInfo& op) {
  constexpr int64_t kChannels = 200;
  const auto draw = [] {
    uint32_t state = 1;
    c10::Stack stack;
    for (size_t i = 0; i < kNumTensors; ++i) {
      const c10::DimVector sizes = i == 0 ? c10::DimVector{3, kChannels, 6, 7} : c10::DimVector{kChannels};
      const at::Tensor numbers = at::detail::empty_cpu(sizes, at::kFloat);
      kernels::draw_for_trial(numbers.mutable_data_ptr<float>(), numbers.numel(), state);
      stack.emplace_back(numbers);
    }
    for (const c10::IValue& value : {c10::IValue(true), c10::IValue(0.1), c10::IValue(1e-5)}) {
      stack.push_back(value);
    }
    return stack;
  };
  const c10::Stack ours = draw();
  const Results results = compute(*plan_batch_norm(ours), ours[0].toTensor());
  const c10::Stack arguments = draw();
  c10::Stack expected = arguments;
  op.call(expected);
  bool is_same = true;
  for (size_t i = 0; i < results.size(); ++i) {
    is_same = is_same && has_same_bits(results[i], expected[i].toTensor());
  }
  for (const size_t running : {3, 4}) {
    is_same = is_same && has_same_bits(ours[running].toTensor(), arguments[running].toTensor());
  }
  return is_same;
}

} // namespace

bool run_batch_norm(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const Arguments arguments = torch::jit::last(stack, op.num_args());
  const auto norm = plan_batch_norm(arguments);
  if (!norm) {
    return false;
  }
  static const bool is_here = has_bits_of_pytorch(op);
  if (!is_here) {
    return false;
  }
  Results results = compute(*norm, arguments[0].toTensor());
  torch::jit::drop(stack, op.num_args());
  for (at::Tensor& result : results) {
    stack.emplace_back(std::move(result));
  }
  return true;
}

} // namespace lazyplug
