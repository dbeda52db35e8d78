#include "lowering/calls/convolution_kernel.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "common/config.h"
#include "common/hash.h"
#include "common/lru_cache.h"
#include "common/metrics.h"
#include "kernels/convolution.h"
#include "kernels/filter_gradient.h"
#include "kernels/trial_numbers.h"
#include "lowering/calls/plain_tensors.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;
using kernels::Convolution;
using kernels::FilterGradient;
using Axis = kernels::Pool::Axis;

// What a call is to compute: its tensor arguments are the first three.
struct Plan {
  Convolution convolution; // without memory for the result
  c10::DimVector sizes;    // of the result
};

bool is_computable(const c10::IValue& argument) {
  return is_contiguous_float(argument) && argument.toTensor().numel() > 0 && has_strides_of_new(argument.toTensor());
}

bool is_computable_image(const c10::IValue& argument) {
  return is_computable(argument) && (argument.toTensor().dim() == 3 || argument.toTensor().dim() == 4);
}

// 0: of rows, 1: of columns. What has but one row has no axis of rows. Windows are stride, padding, dilation, ...
std::optional<Axis> find_axis(Arguments windows, const at::Tensor& images, const at::Tensor& filters, int64_t index) {
  const int64_t num_axes = images.dim() - 2;
  const int64_t place = index - (2 - num_axes);
  if (place < 0) {
    return Axis{1, 1, 1, 1, 1, 0};
  }
  const auto number = [&](size_t argument) -> int64_t {
    constexpr int64_t kMost = int64_t{1} << 40;
    const auto numbers = windows[argument].toListRef();
    const auto count = static_cast<int64_t>(numbers.size());
    if (count != 1 && count != num_axes) {
      return -1;
    }
    const int64_t result = numbers[count == 1 ? 0 : place].toInt();
    return result <= kMost ? result : -1;
  };
  Axis result{images.size(2 + place), 0, filters.size(2 + place), number(2), number(0), number(1)};
  const int64_t left = result.in_size + 2 * result.padding - (result.window - 1) * result.step - 1;
  if (result.stride <= 0 || result.step <= 0 || result.padding < 0 || left < 0) {
    return std::nullopt;
  }
  result.out_size = left / result.stride + 1;
  return result;
}

// A call's convolution, without bias, whether it is quicker here or not: of images and filters, and (stride, padding,
// dilation, transposed, output_padding, groups, ...).
std::optional<Plan>
plan_convolution(const c10::IValue& image_argument, const c10::IValue& filter_argument, Arguments windows) {
  if (!is_computable_image(image_argument) || !is_computable(filter_argument) ||
      may_round_operands(at::Float32Op::CONV)) {
    return std::nullopt;
  }
  const at::Tensor& images = image_argument.toTensor();
  const at::Tensor& filters = filter_argument.toTensor();
  const bool is_transposed = windows[3].toBool();
  const int64_t groups = windows[5].toInt();
  if (is_transposed || groups != 1 || filters.dim() != images.dim() || filters.size(1) != images.size(1)) {
    return std::nullopt;
  }
  const auto rows = find_axis(windows, images, filters, 0);
  const auto columns = find_axis(windows, images, filters, 1);
  if (!rows || !columns) {
    return std::nullopt;
  }
  c10::DimVector sizes{images.size(0), filters.size(0), rows->out_size, columns->out_size};
  if (images.dim() == 3) {
    sizes.erase(sizes.begin() + 2);
  }
  const Convolution convolution{
      images.size(0),
      images.size(1),
      filters.size(0),
      *rows,
      *columns,
      images.const_data_ptr<float>(),
      filters.const_data_ptr<float>()};
  return Plan{convolution, std::move(sizes)};
}

std::optional<Plan> if_quicker(std::optional<Plan> plan) {
  return plan && kernels::is_quicker_here(plan->convolution, at::get_num_threads()) ? std::move(plan) : std::nullopt;
}

// A sum of zeros is +0 here, where it depends on the kernel what the CPU gets if
//  - there is but one product, of which it may take the sign, or
//  - the bias is -0, from which it may begin.
// Otherwise it is +0 there, too. Trials do not see this: their numbers are not zero.
bool has_sign_of_zero_here(const Convolution& convolution) {
  if (!convolution.bias) {
    return convolution.in_channels * convolution.filter_size() > 1;
  }
  return std::none_of(convolution.bias, convolution.bias + convolution.out_channels, [](float x) {
    return x == 0 && std::signbit(x);
  });
}

// convolution(images, filters, bias, stride, ...)
std::optional<Plan> plan_convolution(Arguments arguments) {
  auto result = plan_convolution(arguments[0], arguments[1], arguments.slice(3));
  if (result && is_there(arguments[2])) {
    const at::Tensor& bias = arguments[2].toTensor();
    if (!is_computable(arguments[2]) || bias.dim() != 1 || bias.size(0) != result->convolution.out_channels) {
      return std::nullopt;
    }
    result->convolution.bias = bias.const_data_ptr<float>();
  }
  return result && has_sign_of_zero_here(result->convolution) ? if_quicker(std::move(result)) : std::nullopt;
}

// Of convolution_backward(gradient, images, filters, bias_sizes, stride, ..., output_mask), what it is the gradient of.
std::optional<Plan> plan_forward(Arguments arguments) {
  auto result = plan_convolution(arguments[1], arguments[2], arguments.slice(4));
  const bool is_good = result && is_computable(arguments[0]) && arguments[0].toTensor().sizes() == result->sizes;
  return is_good ? std::move(result) : std::nullopt;
}

Axis axis_of_gradient(const Axis& axis) {
  return {axis.out_size, axis.in_size, axis.window, axis.step, 1, (axis.window - 1) * axis.step - axis.padding};
}

// The gradient of the input.
std::optional<Plan> plan_gradient(Arguments arguments) {
  const auto forward = plan_forward(arguments);
  if (!forward || forward->convolution.rows.stride != 1 || forward->convolution.columns.stride != 1) {
    return std::nullopt;
  }
  const Axis rows = axis_of_gradient(forward->convolution.rows);
  const Axis columns = axis_of_gradient(forward->convolution.columns);
  if (rows.padding < 0 || columns.padding < 0) {
    return std::nullopt;
  }
  const Convolution convolution{
      forward->convolution.num_images,
      forward->convolution.out_channels,
      forward->convolution.in_channels,
      rows,
      columns,
      arguments[0].toTensor().const_data_ptr<float>(),
      forward->convolution.filters,
      nullptr,
      nullptr,
      /*is_gradient=*/true};
  return if_quicker(Plan{convolution, c10::DimVector(arguments[1].toTensor().sizes())});
}

at::Tensor empty(c10::IntArrayRef sizes) {
  return at::detail::empty_cpu(sizes, at::kFloat);
}

// Of results that are none of PyTorch's.
void note_own() {
  static Counter& own = counter("OwnConvolutions");
  own.add();
}

// Undefined if that is left to PyTorch after all.
at::Tensor compute(const Plan& plan) {
  if (!kernels::can_convolve(plan.convolution)) {
    return {};
  }
  at::Tensor result = empty(plan.sizes);
  const at::Tensor memory = empty(floats_to_convolve(plan.convolution));
  Convolution convolution = plan.convolution;
  convolution.result = result.mutable_data_ptr<float>();
  return convolve(convolution, memory.mutable_data_ptr<float>()) ? result : at::Tensor();
}

// What PyTorch's kernel, and oneDNN in turn, choose by; and which of the results it is about.
Hash128 form_of(const Plan& plan, int64_t result) {
  const Convolution& convolution = plan.convolution;
  c10::SmallVector<int64_t, 24> numbers{
      result,
      static_cast<int64_t>(plan.sizes.size()),
      convolution.num_images,
      convolution.in_channels,
      convolution.out_channels,
      convolution.bias != nullptr,
      at::get_num_threads(),
      at::globalContext().userEnabledMkldnn(),
      at::globalContext().userEnabledNNPACK(),
      at::globalContext().deterministicMkldnn()};
  for (const Axis* axis : {&convolution.rows, &convolution.columns}) {
    numbers.append({axis->in_size, axis->window, axis->step, axis->stride, axis->padding});
  }
  return hash_words(numbers.data(), numbers.size());
}

// What a trial found, by forms of calls: 0 if they are PyTorch's, and until the form comes for the second time, since
// one that comes but once is not worth a trial. With the flag `fusion` at 2, each is tried at once. From any thread:
// two may try the same form, and find the same.
template <typename Trial>
int64_t found_for(Hash128 form, const Trial& trial) {
  constexpr size_t kMostForms = 4096;
  constexpr int64_t kNew = -1;
  constexpr int64_t kSeen = -2;
  static auto* const all = new LruCache<Hash128, std::shared_ptr<std::atomic<int64_t>>>(kMostForms);
  auto found = all->find(form);
  if (!found) {
    found = all->insert(form, std::make_shared<std::atomic<int64_t>>(kNew));
  }
  std::atomic<int64_t>& result = **found;
  if (result == kNew && config().fusion.get() != 2) {
    result = kSeen;
    return 0;
  }
  if (result < 0) {
    result = trial();
  }
  return result;
}

// The arguments with random numbers in the place of tensors.
c10::Stack draw(Arguments arguments, uint32_t& state) {
  c10::Stack stack(arguments.begin(), arguments.end());
  for (size_t i = 0; i < 3; ++i) {
    if (is_there(stack[i])) {
      const at::Tensor numbers = empty(stack[i].toTensor().sizes());
      kernels::draw_for_trial(numbers.mutable_data_ptr<float>(), numbers.numel(), state);
      stack[i] = numbers;
    }
  }
  return stack;
}

// The first candidate whose results are those of PyTorch, or 0. Two orders of summation often have the same result:
// small ones are compared for several random arguments. Calls call(drawn), and matches(candidate, drawn, expected) with
// what that returned.
template <typename Call, typename Matches>
int64_t find_candidate(
    Arguments arguments,
    int64_t num_results,
    std::vector<int64_t> candidates,
    const Call& call,
    const Matches& matches) {
  constexpr int64_t kEnough = 256;
  constexpr int64_t kMostTimes = 64;
  const int64_t num_times = std::clamp<int64_t>((kEnough - 1) / num_results + 1, 1, kMostTimes);
  uint32_t state = 1;
  for (int64_t i = 0; i < num_times && !candidates.empty(); ++i) {
    const c10::Stack drawn = draw(arguments, state);
    const c10::Stack expected = call(drawn);
    std::erase_if(candidates, [&](int64_t candidate) { return !matches(candidate, drawn, expected); });
  }
  return candidates.empty() ? 0 : candidates.front();
}

// Ours may be undefined.
bool agrees(const at::Tensor& ours, const c10::IValue& expected) {
  return ours.defined() && has_same_bits(ours, expected.toTensor());
}

// Orders as candidates: 0 is the library's own.
using Order = Convolution::Order;
constexpr int64_t kOfLibrary = 0;

int64_t candidate(Order order) {
  return static_cast<int64_t>(order) + 1;
}
// With that one.
Plan in_order(Plan plan, int64_t candidate) {
  plan.convolution.order = static_cast<Order>(candidate - 1);
  return plan;
}

class Gradients {
 public:
  Gradients(const OpInfo& op, c10::Stack& stack) : op_(op), stack_(stack) {
    const auto mask = arguments().back().toListRef();
    for (size_t i = 0; i < 3; ++i) {
      is_wanted_[i] = mask[i].toBool();
    }
  }

  // Nothing, and false, if all is left to PyTorch.
  bool run() {
    if (is_wanted_[0]) {
      compute_of_input();
    }
    if (is_wanted_[1]) {
      compute_of_filters();
    }
    if (!results_[0].defined() && !results_[1].defined()) {
      return false;
    }
    const bool is_left[] = {
        is_wanted_[0] && !results_[0].defined(),
        is_wanted_[1] && !results_[1].defined(),
        is_wanted_[2] && !results_[2].defined()};
    if (is_left[0] || is_left[1] || is_left[2]) {
      stack_.back() = c10::List<bool>({is_left[0], is_left[1], is_left[2]});
      op_.call(stack_);
    } else {
      torch::jit::drop(stack_, op_.num_args());
      stack_.resize(stack_.size() + 3, at::Tensor());
    }
    for (size_t i = 0; i < 3; ++i) {
      if (results_[i].defined()) {
        note_own();
        stack_[stack_.size() - 3 + i] = std::move(results_[i]);
      }
    }
    return true;
  }

 private:
  Arguments arguments() const {
    return torch::jit::last(stack_, op_.num_args());
  }

  c10::Stack call(c10::Stack drawn, std::array<bool, 3> mask) const {
    drawn.back() = c10::List<bool>({mask[0], mask[1], mask[2]});
    op_.call(drawn);
    return drawn;
  }

  void compute_of_input() {
    const auto plan = plan_gradient(arguments());
    const auto expected = [&](const c10::Stack& drawn) { return call(drawn, {true, false, false}); };
    const auto matches = [](int64_t order, const c10::Stack& drawn, const c10::Stack& expected) {
      return agrees(compute(in_order(*plan_gradient(drawn), order)), expected[0]);
    };
    const auto find_order = [&] {
      const std::vector<int64_t> orders = {candidate(Order::kBlocks), candidate(Order::kRunning)};
      return find_candidate(arguments(), c10::multiply_integers(plan->sizes), orders, expected, matches);
    };
    const int64_t order = plan ? found_for(form_of(*plan, 1), find_order) : kOfLibrary;
    if (order != kOfLibrary) {
      results_[0] = compute(in_order(*plan, order));
    }
  }

  void compute_of_filters() {
    const auto plan = plan_forward(arguments());
    if (!plan || !kernels::is_quicker_here(FilterGradient{plan->convolution})) {
      return;
    }
    const auto expected = [&](const c10::Stack& drawn) { return call(drawn, {false, true, is_wanted_[2]}); };
    const auto matches = [&](int64_t num_parts, const c10::Stack& drawn, const c10::Stack& expected) {
      const auto ours = compute_filters(drawn, num_parts);
      return agrees(ours[0], expected[1]) && (!is_wanted_[2] || agrees(ours[1], expected[2]));
    };
    const auto find_parts = [&] {
      const int64_t num_filters = arguments()[2].toTensor().numel();
      const int64_t num_results = is_wanted_[2] ? plan->convolution.out_channels : num_filters;
      const int64_t num_images = plan->convolution.num_images;
      const int64_t num_threads = std::min<int64_t>(at::get_num_threads(), num_images);
      return find_candidate(arguments(), num_results, {1, num_threads, num_images}, expected, matches);
    };
    if (const int64_t parts = found_for(form_of(*plan, is_wanted_[2] ? 3 : 2), find_parts)) {
      const auto ours = compute_filters(arguments(), parts);
      results_[1] = ours[0];
      results_[2] = ours[1];
    }
  }

  // Undefined if that is left to PyTorch after all.
  std::array<at::Tensor, 2> compute_filters(Arguments arguments, int64_t num_parts) const {
    const auto plan = plan_forward(arguments);
    const at::Tensor of_filters = empty(arguments[2].toTensor().sizes());
    const at::Tensor of_bias = is_wanted_[2] ? empty(of_filters.sizes().slice(0, 1)) : at::Tensor();
    const FilterGradient gradient{
        plan->convolution,
        arguments[0].toTensor().const_data_ptr<float>(),
        num_parts,
        of_filters.mutable_data_ptr<float>(),
        is_wanted_[2] ? of_bias.mutable_data_ptr<float>() : nullptr};
    const at::Tensor memory = empty(floats_to_compute(gradient));
    const bool is_computed = kernels::compute(gradient, memory.mutable_data_ptr<float>());
    return is_computed ? std::array{of_filters, of_bias} : std::array<at::Tensor, 2>();
  }

  const OpInfo& op_;
  c10::Stack& stack_;
  std::array<bool, 3> is_wanted_{};
  std::array<at::Tensor, 3> results_;
};

} // namespace

bool run_convolution(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const Arguments arguments = torch::jit::last(stack, op.num_args());
  auto plan = plan_convolution(arguments);
  const auto call = [&](c10::Stack drawn) {
    op.call(drawn);
    return drawn;
  };
  const auto matches = [](int64_t order, const c10::Stack& drawn, const c10::Stack& expected) {
    return agrees(compute(in_order(*plan_convolution(drawn), order)), expected[0]);
  };
  const auto find_order = [&] {
    const std::vector<int64_t> orders = {
        candidate(Order::kBlocks),
        candidate(Order::kChain),
        candidate(Order::kRunning)};
    return find_candidate(arguments, c10::multiply_integers(plan->sizes), orders, call, matches);
  };
  const int64_t order = plan ? found_for(form_of(*plan, 0), find_order) : kOfLibrary;
  if (order == kOfLibrary) {
    return false;
  }
  at::Tensor result = compute(in_order(*plan, order));
  if (!result.defined()) {
    return false;
  }
  note_own();
  torch::jit::drop(stack, op.num_args());
  stack.emplace_back(std::move(result));
  return true;
}

bool run_convolution_backward(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  return Gradients(op, stack).run();
}

} // namespace lazyplug
