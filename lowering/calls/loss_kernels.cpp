#include "lowering/calls/loss_kernels.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <c10/util/llvmMathExtras.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "lowering/calls/call_results.h"
#include "lowering/calls/dense_tensors.h"
#include "lowering/calls/small_sum.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// Of more, PyTorch's loops take less time than what they prepare saves: they are vectors, and ours of distances branch.
constexpr int64_t kMaxElements = 4'096;
constexpr int64_t kMaxDistances = 1'024;
constexpr int64_t kMaxBatch = 1'024;

bool is_reduced(const c10::IValue& reduction) {
  return reduction.toInt() == at::Reduction::Mean || reduction.toInt() == at::Reduction::Sum;
}

bool is_mean(const c10::IValue& reduction) {
  return reduction.toInt() == at::Reduction::Mean;
}

// ---- of classes ----

struct Classes {
  const at::Tensor& scores; // [batch, classes]
  Places targets;
  int64_t ignored;
  bool is_mean;

  int64_t num_classes() const {
    return scores.size(1);
  }
};

// (self, target, weight, reduction, ignore_index)
std::optional<Classes> find_classes(Arguments arguments) {
  const auto* scores = dense_floats(arguments[0]);
  const auto targets = dense_places(arguments[1]);
  const bool is_batch = scores && scores->dim() == 2 && targets && arguments[1].toTensor().dim() == 1 &&
                        static_cast<int64_t>(targets->size()) == scores->size(0) && scores->size(0) <= kMaxBatch;
  if (!is_batch || is_there(arguments[2]) || !is_reduced(arguments[3])) {
    return std::nullopt;
  }
  const Classes classes{*scores, *targets, arguments[4].toInt(), is_mean(arguments[3])};
  const bool are_there = std::all_of(targets->begin(), targets->end(), [&](int64_t target) {
    return target == classes.ignored || (target >= 0 && target < classes.num_classes());
  });
  return are_there ? std::optional(classes) : std::nullopt;
}

// Of what the targets say, in the order of PyTorch's kernel: partial sums of partial sums. It passes on none of them
// where a target is ignored.
template <typename T>
T sum_of_losses(const Classes& classes, int64_t& num_ignored) {
  constexpr size_t kLevels = 8;
  const auto count = static_cast<int64_t>(classes.targets.size());
  const int64_t bits_of_count = count <= 1 ? 0 : static_cast<int64_t>(c10::llvm::Log2_64_Ceil(count));
  const int64_t bits = std::max<int64_t>(4, bits_of_count / static_cast<int64_t>(kLevels));
  const int64_t mask = (int64_t{1} << bits) - 1;
  const T* scores = classes.scores.const_data_ptr<T>();
  std::array<T, kLevels> sums{};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t target = classes.targets[i];
    if (target == classes.ignored) {
      ++num_ignored;
      continue;
    }
    sums[0] -= scores[i * classes.num_classes() + target];
    for (size_t level = 0; level + 1 < kLevels && (i & (mask << (static_cast<int64_t>(level) * bits))) == 0; ++level) {
      sums[level + 1] += sums[level];
      sums[level] = 0;
    }
  }
  T result = 0;
  for (const T sum : sums) {
    result += sum;
  }
  return result;
}

// ---- of differences ----

enum class Loss : uint8_t { kSquare, kSmooth };

template <Loss kLoss, typename T>
T loss_of(T difference) {
  if constexpr (kLoss == Loss::kSquare) {
    return difference * difference;
  } else {
    const T distance = std::abs(difference);
    return distance < 1 ? T(0.5) * distance * distance : distance - T(0.5);
  }
}

template <Loss kLoss, typename T>
T slope_of(T difference) {
  if constexpr (kLoss == Loss::kSquare) {
    return difference;
  } else {
    return difference <= -1 ? T(-1) : difference >= 1 ? T(1) : difference;
  }
}

bool are_alike(const at::Tensor* a, const at::Tensor* b, Loss loss) {
  return a && b && a->scalar_type() == b->scalar_type() && a->sizes() == b->sizes() &&
         a->numel() <= (loss == Loss::kSquare ? kMaxElements : kMaxDistances);
}

bool has_bound(Arguments arguments, Loss loss) {
  return loss == Loss::kSquare || arguments.back().toDouble() == 1;
}

// (self, target, reduction), and perhaps a bound.
template <Loss kLoss>
bool run_loss(const OpInfo& op, c10::Stack& stack) {
  const Arguments arguments = torch::jit::last(stack, op.num_args());
  const auto* input = dense_floats(arguments[0]);
  const auto* target = dense_floats(arguments[1]);
  if (!are_alike(input, target, kLoss) || !is_reduced(arguments[2]) || !has_bound(arguments, kLoss)) {
    return false;
  }
  const auto makes = is_mean(arguments[2]) ? kernels::Opcode::kRowMean : kernels::Opcode::kRowSum;
  const auto dtype = input->scalar_type();
  const auto sum = SmallSum::plan(makes, Geometry::contiguous(dtype, input->sizes()), c10::IValue());
  if (!sum) {
    return false;
  }
  const at::Tensor losses = at::detail::empty_cpu(input->sizes(), dtype);
  with_dtype(*input, [&]<typename T>(T) {
    const T* from = input->const_data_ptr<T>();
    std::transform(
        from,
        from + input->numel(),
        target->const_data_ptr<T>(),
        losses.mutable_data_ptr<T>(),
        [](T x, T y) { return loss_of<kLoss>(x - y); });
  });
  at::Tensor result = at::detail::empty_cpu({}, dtype);
  sum->run(losses.const_data_ptr(), result.mutable_data_ptr());
  return_result(op, stack, std::move(result));
  return true;
}

// (grad_output, self, target, reduction), and perhaps a bound.
template <Loss kLoss>
bool run_gradient(const OpInfo& op, c10::Stack& stack) {
  const Arguments arguments = torch::jit::last(stack, op.num_args());
  const auto* gradient = dense_floats(arguments[0]);
  const auto* input = dense_floats(arguments[1]);
  const auto* target = dense_floats(arguments[2]);
  if (!are_alike(input, target, kLoss) || !is_reduced(arguments[3]) || !has_bound(arguments, kLoss) || !gradient ||
      gradient->dim() != 0 || gradient->scalar_type() != input->scalar_type()) {
    return false;
  }
  at::Tensor result = at::detail::empty_cpu(input->sizes(), input->scalar_type());
  with_dtype(*input, [&]<typename T>(T) {
    const double share = is_mean(arguments[3]) ? static_cast<double>(input->numel()) : 1;
    const double least = kLoss == Loss::kSquare ? 2 : 1; // of a derivative
    const T factor = static_cast<T>(least / share);
    const T given = *gradient->const_data_ptr<T>();
    const T* from = input->const_data_ptr<T>();
    std::transform(
        from,
        from + input->numel(),
        target->const_data_ptr<T>(),
        result.mutable_data_ptr<T>(),
        [=](T x, T y) { return factor * slope_of<kLoss>(x - y) * given; });
  });
  return_result(op, stack, std::move(result));
  return true;
}

} // namespace

bool run_nll_loss(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const auto classes = find_classes(torch::jit::last(stack, op.num_args()));
  if (!classes) {
    return false;
  }
  const auto dtype = classes->scores.scalar_type();
  at::Tensor result = at::detail::empty_cpu({}, dtype);
  at::Tensor total_weight = at::detail::empty_cpu({}, dtype);
  with_dtype(classes->scores, [&]<typename T>(T) {
    int64_t num_ignored = 0;
    const T sum = sum_of_losses<T>(*classes, num_ignored);
    const T weight = static_cast<T>(static_cast<int64_t>(classes->targets.size()) - num_ignored);
    *result.mutable_data_ptr<T>() = classes->is_mean ? sum / weight : sum;
    *total_weight.mutable_data_ptr<T>() = weight;
  });
  return_result(op, stack, std::move(result));
  stack.emplace_back(std::move(total_weight));
  return true;
}

// (grad_output, self, target, weight, reduction, ignore_index, total_weight)
bool run_nll_loss_gradient(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const Arguments arguments = torch::jit::last(stack, op.num_args());
  const auto classes = find_classes(arguments.slice(1, 5));
  const auto* gradient = dense_floats(arguments[0]);
  const auto* weight = dense_floats(arguments[6]);
  if (!classes || classes->scores.numel() >= at::internal::GRAIN_SIZE || !gradient || !weight ||
      gradient->numel() != 1 || gradient->dim() > 1 || weight->numel() != 1 ||
      gradient->scalar_type() != classes->scores.scalar_type() ||
      weight->scalar_type() != classes->scores.scalar_type()) {
    return false;
  }
  at::Tensor result = at::detail::empty_cpu(classes->scores.sizes(), classes->scores.scalar_type());
  with_dtype(*gradient, [&]<typename T>(T) {
    const T given = *gradient->const_data_ptr<T>();
    const T of_one = -(classes->is_mean ? given / *weight->const_data_ptr<T>() : given);
    T* to = result.mutable_data_ptr<T>();
    std::fill_n(to, result.numel(), T(0));
    for (const int64_t target : classes->targets) {
      if (target != classes->ignored) {
        to[target] = of_one;
      }
      to += classes->num_classes();
    }
  });
  return_result(op, stack, std::move(result));
  return true;
}

bool run_mse_loss(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  return run_loss<Loss::kSquare>(op, stack);
}

bool run_mse_loss_gradient(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  return run_gradient<Loss::kSquare>(op, stack);
}

bool run_smooth_loss(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  return run_loss<Loss::kSmooth>(op, stack);
}

bool run_smooth_loss_gradient(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  return run_gradient<Loss::kSmooth>(op, stack);
}

} // namespace lazyplug
