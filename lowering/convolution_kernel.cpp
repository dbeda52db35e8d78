#include "lowering/convolution_kernel.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>

#include "common/hash.h"
#include "common/lru_cache.h"
#include "kernels/convolution.h"
#include "kernels/trial_numbers.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;
using kernels::Convolution;
using Axis = kernels::Pool::Axis;

// What a call is to compute: its tensor arguments are the first three.
struct Plan {
  Convolution convolution; // without memory for the result
  c10::DimVector sizes;    // of the result
};

bool is_defined(const c10::IValue& argument) {
  return argument.isTensor() && argument.toTensor().defined();
}

bool is_plain(const c10::IValue& argument) {
  if (!is_defined(argument)) {
    return false;
  }
  const at::Tensor& tensor = argument.toTensor();
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && !tensor.is_neg() && tensor.numel() > 0 &&
         tensor.is_contiguous() && tensor.suggest_memory_format() == at::MemoryFormat::Contiguous;
}

bool is_plain_image(const c10::IValue& argument) {
  return is_plain(argument) && (argument.toTensor().dim() == 3 || argument.toTensor().dim() == 4);
}

// oneDNN may round the operands, if the program allows that.
bool may_round_operands() {
  const auto precision = at::globalContext().float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::CONV);
  return precision == at::Float32Precision::BF16 || precision == at::Float32Precision::TF32;
}

// (..., stride, padding, dilation, transposed, output_padding, groups, ...), from `first` on.
class Windows {
 public:
  Windows(Arguments arguments, size_t first, const at::Tensor& images, const at::Tensor& filters)
      : arguments_(arguments.slice(first)), images_(images), filters_(filters) {}

  bool are_usual() const {
    const bool is_transposed = arguments_[3].toBool();
    const int64_t groups = arguments_[5].toInt();
    return !is_transposed && groups == 1 && filters_.dim() == images_.dim() && filters_.size(1) == images_.size(1) &&
           !may_round_operands();
  }

  // 0: of rows, 1: of columns. What has but one row has no axis of rows.
  std::optional<Axis> axis(int64_t index) const {
    const int64_t place = index - (4 - images_.dim());
    if (place < 0) {
      return Axis{1, 1, 1, 1, 1, 0};
    }
    const auto number = [&](size_t argument) {
      const auto numbers = arguments_[argument].toListRef();
      return numbers[numbers.size() == 1 ? 0 : place].toInt();
    };
    Axis result{images_.size(2 + place), 0, filters_.size(2 + place), number(2), number(0), number(1)};
    const int64_t left = result.in_size + 2 * result.padding - (result.window - 1) * result.step - 1;
    if (result.stride <= 0 || result.step <= 0 || result.padding < 0 || left < 0) {
      return std::nullopt;
    }
    result.out_size = left / result.stride + 1;
    return result;
  }

 private:
  Arguments arguments_;
  const at::Tensor& images_;
  const at::Tensor& filters_;
};

std::optional<Plan> if_quicker(const Convolution& convolution, c10::DimVector sizes) {
  return kernels::is_quicker_here(convolution, at::get_num_threads()) ? std::optional(Plan{convolution, std::move(sizes)})
                                                                      : std::nullopt;
}

// convolution(images, filters, bias, stride, padding, dilation, transposed, output_padding, groups)
std::optional<Plan> plan_convolution(Arguments arguments) {
  if (!is_plain_image(arguments[0]) || !is_plain(arguments[1]) || (is_defined(arguments[2]) && !is_plain(arguments[2]))) {
    return std::nullopt;
  }
  const at::Tensor& images = arguments[0].toTensor();
  const at::Tensor& filters = arguments[1].toTensor();
  const at::Tensor* bias = is_defined(arguments[2]) ? &arguments[2].toTensor() : nullptr;
  const Windows windows(arguments, 3, images, filters);
  if (!windows.are_usual() || (bias && bias->sizes() != filters.sizes().slice(0, 1))) {
    return std::nullopt;
  }
  const auto rows = windows.axis(0);
  const auto columns = windows.axis(1);
  if (!rows || !columns) {
    return std::nullopt;
  }
  c10::DimVector sizes{images.size(0), filters.size(0), rows->out_size, columns->out_size};
  if (images.dim() == 3) {
    sizes.erase(sizes.begin() + 2);
  }
  return if_quicker(
      {images.size(0),
       images.size(1),
       filters.size(0),
       *rows,
       *columns,
       images.const_data_ptr<float>(),
       filters.const_data_ptr<float>(),
       bias ? bias->const_data_ptr<float>() : nullptr,
       nullptr},
      std::move(sizes));
}

std::optional<Axis> axis_of_gradient(const std::optional<Axis>& axis) {
  if (!axis || axis->stride != 1) {
    return std::nullopt;
  }
  const int64_t padding = (axis->window - 1) * axis->step - axis->padding;
  return Axis{axis->out_size, axis->in_size, axis->window, axis->step, 1, padding};
}

// Of the input; convolution_backward(gradient, images, filters, bias_sizes, stride, padding, dilation, transposed,
// output_padding, groups, output_mask)
std::optional<Plan> plan_gradient(Arguments arguments) {
  if (!is_plain_image(arguments[0]) || !is_plain_image(arguments[1]) || !is_plain(arguments[2]) ||
      !arguments[10].toListRef()[0].toBool()) {
    return std::nullopt;
  }
  const at::Tensor& gradient = arguments[0].toTensor();
  const at::Tensor& images = arguments[1].toTensor();
  const at::Tensor& filters = arguments[2].toTensor();
  const Windows windows(arguments, 4, images, filters);
  if (!windows.are_usual() || gradient.dim() != images.dim()) {
    return std::nullopt;
  }
  const auto rows = axis_of_gradient(windows.axis(0));
  const auto columns = axis_of_gradient(windows.axis(1));
  const bool is_good = rows && columns && rows->padding >= 0 && columns->padding >= 0 &&
                       gradient.size(0) == images.size(0) && gradient.size(1) == filters.size(0) &&
                       gradient.numel() == images.size(0) * filters.size(0) * rows->in_size * columns->in_size;
  if (!is_good) {
    return std::nullopt;
  }
  return if_quicker(
      {images.size(0),
       filters.size(0),
       images.size(1),
       *rows,
       *columns,
       gradient.const_data_ptr<float>(),
       filters.const_data_ptr<float>(),
       nullptr,
       nullptr,
       /*is_gradient=*/true},
      c10::DimVector(images.sizes()));
}

at::Tensor empty(c10::IntArrayRef sizes) {
  return at::detail::empty_cpu(sizes, at::kFloat);
}

at::Tensor compute(const Plan& plan) {
  at::Tensor result = empty(plan.sizes);
  const at::Tensor memory = empty(floats_to_convolve(plan.convolution));
  Convolution convolution = plan.convolution;
  convolution.result = result.mutable_data_ptr<float>();
  convolve(convolution, memory.mutable_data_ptr<float>());
  return result;
}

// What PyTorch's kernel, and oneDNN in turn, choose by.
Hash128 form_of(const Plan& plan) {
  const Convolution& convolution = plan.convolution;
  c10::SmallVector<int64_t, 24> numbers{
      static_cast<int64_t>(plan.sizes.size()),
      convolution.num_images,
      convolution.in_channels,
      convolution.out_channels,
      convolution.bias != nullptr,
      convolution.is_gradient,
      at::get_num_threads(),
      at::globalContext().userEnabledMkldnn()};
  for (const Axis* axis : {&convolution.rows, &convolution.columns}) {
    numbers.append({axis->in_size, axis->window, axis->step, axis->stride, axis->padding});
  }
  return hash_words(numbers.data(), numbers.size());
}

class Kernel {
 public:
  using MakePlan = std::optional<Plan> (*)(Arguments);

  Kernel(const OpInfo& op, MakePlan make_plan) : op_(&op), make_plan_(make_plan) {}

  // Nothing, and false, if that is left to PyTorch.
  bool run_if_quicker(c10::Stack& stack) const {
    const Arguments arguments = torch::jit::last(stack, op_->num_args());
    const auto plan = make_plan_(arguments);
    if (!plan || !has_bits_of_library(*plan, arguments)) {
      return false;
    }
    at::Tensor result = compute(*plan);
    if (!plan->convolution.is_gradient) {
      torch::jit::drop(stack, op_->num_args());
      stack.emplace_back(std::move(result));
      return true;
    }
    const auto mask = arguments.back().toListRef();
    const bool is_all = !mask[1].toBool() && !mask[2].toBool();
    if (is_all) {
      torch::jit::drop(stack, op_->num_args());
      stack.resize(stack.size() + 3, at::Tensor());
    } else {
      stack.back() = c10::List<bool>({false, mask[1].toBool(), mask[2].toBool()});
      op_->call(stack);
    }
    stack[stack.size() - 3] = std::move(result);
    return true;
  }

  void operator()(c10::Stack& stack) const {
    if (!run_if_quicker(stack)) {
      op_->call(stack);
    }
  }

 private:
  enum class Verdict : uint8_t { kNew, kSeen, kSame, kOther };

  // By their forms. A form that comes but once is not worth a trial.
  bool has_bits_of_library(const Plan& plan, Arguments arguments) const {
    constexpr size_t kMostForms = 4096;
    static auto* const verdicts = new LruCache<Hash128, std::shared_ptr<std::atomic<Verdict>>>(kMostForms);
    const Hash128 form = form_of(plan);
    auto verdict = verdicts->find(form);
    if (!verdict) {
      verdict = verdicts->insert(form, std::make_shared<std::atomic<Verdict>>(Verdict::kNew));
    }
    switch ((*verdict)->load()) {
      case Verdict::kNew:
        **verdict = Verdict::kSeen;
        return false;
      case Verdict::kSeen:
        **verdict = is_same_in_trial(arguments) ? Verdict::kSame : Verdict::kOther;
        break;
      default:
        break;
    }
    return **verdict == Verdict::kSame;
  }

  bool is_same_in_trial(Arguments arguments) const {
    uint32_t state = 1;
    c10::Stack stack(arguments.begin(), arguments.end());
    for (size_t i = 0; i < 3; ++i) {
      if (is_defined(stack[i])) {
        const at::Tensor numbers = empty(stack[i].toTensor().sizes());
        kernels::draw_for_trial(numbers.mutable_data_ptr<float>(), numbers.numel(), state);
        stack[i] = numbers;
      }
    }
    const auto plan = make_plan_(stack);
    if (!plan) {
      return false;
    }
    const at::Tensor ours = compute(*plan);
    if (plan->convolution.is_gradient) {
      stack.back() = c10::List<bool>({true, false, false});
    }
    op_->call(stack);
    const at::Tensor& expected = stack.front().toTensor();
    return ours.sizes() == expected.sizes() && ours.strides() == expected.strides() &&
           std::memcmp(ours.const_data_ptr(), expected.const_data_ptr(), ours.nbytes()) == 0;
  }

  const OpInfo* op_;
  MakePlan make_plan_;
};

std::optional<Kernel> find(const OpInfo& op) {
  if (op.name() == "aten::convolution") {
    return Kernel(op, plan_convolution);
  }
  return op.name() == "aten::convolution_backward" ? std::optional(Kernel(op, plan_gradient)) : std::nullopt;
}

} // namespace

bool run_convolution(const OpInfo& op, c10::Stack& stack) {
  const auto kernel = find(op);
  return kernel && kernel->run_if_quicker(stack);
}

std::function<void(c10::Stack&)>
convolution_kernel(const torch::jit::Node& /*node*/, const OpInfo& op, TypeGeometries& /*geometries*/) {
  auto kernel = find(op);
  return kernel ? std::function<void(c10::Stack&)>(*kernel) : nullptr;
}

} // namespace lazyplug
