#include "backend/native/optimizers.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/execution/lazy_storage.h"
#include "backend/ops/op_registry.h"
#include "backend/recording/fast_kernels.h"
#include "backend/recording/force_fallback.h"
#include "backend/recording/tracer.h"
#include "common/config.h"
#include "common/small_set.h"
#include "lowering/optimizer_programs.h"
#include "lowering/passes/pass.h"
#include "lowering/tile_kernel.h"

namespace lazyplug::native {
namespace {

// ---- what fits ----

// Whether calls on the tensor would go straight to the device.
bool is_unobserved(const at::Tensor& tensor) {
  const auto& tls = c10::impl::tls_local_dispatch_key_set();
  const auto keys =
      ((tensor.key_set() | tls.included_) - tls.excluded_).remove(c10::DispatchKey::BackendSelect); // of factories
  return (keys.raw_repr() & fast_kernels::kBetween) == 0 && !keys.has(c10::DispatchKey::PythonDispatcher);
}

bool can_compute_in(c10::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble;
}

bool is_like(const c10::TensorImpl& tensor, const c10::TensorImpl& first) {
  return tensor.dtype() == first.dtype() && tensor.sizes() == first.sizes() && tensor.strides() == first.strides() &&
         tensor.key_set() == first.key_set();
}

bool is_dense(const c10::TensorImpl& tensor) {
  const bool has_bits =
      tensor.key_set().has_any(c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}));
  return tensor.layout() == c10::kStrided && !tensor.has_symbolic_sizes_strides() && !has_bits &&
         tensor.is_non_overlapping_and_dense_or_false();
}

class Storages {
 public:
  // False if it is not one of this device, or shared with another tensor of the step.
  bool add(const c10::TensorImpl& tensor) {
    auto* storage = tensor.key_set().has(c10::DispatchKey::Python) ? nullptr : LazyStorageImpl::of(&tensor);
    context_ = context_ || !storage ? context_ : &storage->context();
    return storage && &storage->context() == context_ && seen_.insert(storage);
  }

 private:
  const DeviceContext* context_ = nullptr;
  SmallSet<const LazyStorageImpl*> seen_;
};

bool fit(TensorLists lists) {
  const at::TensorList params = lists[0];
  const auto is_as_long = [&](at::TensorList list) { return list.size() == params.size(); };
  if (params.empty() || !std::all_of(lists.begin(), lists.end(), is_as_long) || !is_lazy(params[0]) ||
      !can_compute_in(params[0].scalar_type()) || !is_unobserved(params[0]) || c10::GradMode::is_enabled()) {
    return false;
  }
  Storages storages;
  for (size_t row = 0; row < params.size(); ++row) {
    const c10::TensorImpl& param = *params[row].unsafeGetTensorImpl();
    if (!is_dense(param) || param.dtype() != params[0].dtype() || params[row].is_inference() ||
        params[row]._fw_grad(/*level=*/0).defined()) {
      return false;
    }
    for (const at::TensorList& list : lists) {
      const c10::TensorImpl& tensor = *list[row].unsafeGetTensorImpl();
      if (!storages.add(tensor) || !is_like(tensor, param)) {
        return false;
      }
    }
  }
  return true;
}

bool may_share_a_kernel() {
  return config().fusion.get() != 0 && is_pass_enabled("foreach_groups") && !config().launch_blocking.get() &&
         !is_any_fallback_forced();
}

// ---- recording ----

// Checked when a kernel converts them, as a rule; but eager raises at the line.
bool are_small(c10::ArrayRef<double> numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](double number) {
    return std::abs(number) <= std::numeric_limits<float>::max();
  });
}

c10::impl::GenericList to_list(c10::ArrayRef<double> numbers) {
  c10::impl::GenericList list(c10::NumberType::get());
  list.reserve(numbers.size());
  for (const double number : numbers) {
    list.emplace_back(number);
  }
  return list;
}

// As often as PyTorch's calls do.
void bump_versions(at::TensorList tensors, size_t count) {
  for (const at::Tensor& tensor : tensors) {
    for (size_t i = 0; i < count; ++i) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
}

std::vector<at::Tensor> concatenate(TensorLists lists) {
  std::vector<at::Tensor> all;
  all.reserve(lists.size() * lists[0].size());
  for (const at::TensorList& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

void record(TensorLists written, at::TensorList read, c10::ArrayRef<double> numbers, const Update& update) {
  static const OpInfo& op = op_info(kTileUpdate, "");
  const std::vector<at::Tensor> all_written = concatenate(written);
  const c10::IValue scalars = to_list(numbers);
  const auto rows = static_cast<int64_t>(read.size());
  const bool is_predicted = predict(op, all_written[0], [&](PredictedCall& call) {
                              return call.add(at::TensorList(all_written)) && call.add(read) && call.add(scalars) &&
                                     call.add(rows) && call.add(std::string_view(update.program));
                            }).has_value();
  if (!is_predicted) {
    c10::Stack stack;
    torch::jit::push(stack, all_written, read, scalars, rows, update.program);
    trace_unpredicted(op, &stack);
  }
  for (size_t i = 0; i < written.size(); ++i) {
    bump_versions(written[i], update.num_writes[i]);
  }
}

// ---- Adam ----

// What torch.optim counts steps with: a number on the CPU.
class StepCount {
 public:
  static bool is_one(const at::Tensor& step) {
    const c10::TensorImpl& impl = *step.unsafeGetTensorImpl();
    const bool is_plain = impl.is_cpu() && impl.layout() == c10::kStrided && impl.numel() == 1 && !impl.is_neg();
    return is_plain && !impl.key_set().has(c10::DispatchKey::Python) && !step.requires_grad() && !step.is_inference() &&
           (step.scalar_type() == at::kFloat || step.scalar_type() == at::kDouble);
  }

  explicit StepCount(const at::Tensor& step) : step_(step) {}

  double next() const {
    return step_.scalar_type() == at::kFloat ? *step_.const_data_ptr<float>() + 1.F
                                             : *step_.const_data_ptr<double>() + 1.;
  }
  void count_up() const {
    const double next = this->next();
    if (step_.scalar_type() == at::kFloat) {
      *step_.mutable_data_ptr<float>() = static_cast<float>(next);
    } else {
      *step_.mutable_data_ptr<double>() = next;
    }
    step_.unsafeGetTensorImpl()->bump_version();
  }

 private:
  const at::Tensor& step_;
};

bool are_counts(at::TensorList steps) {
  SmallSet<const c10::StorageImpl*> seen;
  return std::all_of(steps.begin(), steps.end(), [&](const at::Tensor& step) {
    return StepCount::is_one(step) && seen.insert(step.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  });
}

// What has been counted, next: once if it is the same for all.
std::vector<double> next_counts(at::TensorList steps) {
  std::vector<double> counts;
  for (const at::Tensor& step : steps) {
    counts.push_back(StepCount(step).next());
  }
  const bool are_alike = std::all_of(counts.begin(), counts.end(), [&](double count) { return count == counts[0]; });
  counts.resize(are_alike ? 1 : counts.size());
  return counts;
}

// As tile_update_ takes them, and as Python computes them. Empty where that would raise.
std::vector<double> adam_numbers(at::TensorList steps, const AdamOptions& options, const UpdateForm& form) {
  std::vector<double> roots;
  std::vector<double> step_sizes;
  for (const double t : next_counts(steps)) {
    const double first_correction = 1 - std::pow(options.beta1, t);
    const double second_correction = 1 - std::pow(options.beta2, t);
    if (!(first_correction > 0 && second_correction > 0)) {
      return {};
    }
    roots.push_back(std::pow(second_correction, 0.5));
    step_sizes.push_back(options.lr / first_correction * -1);
  }
  std::vector<double> numbers;
  if (form.adds_weights) {
    numbers.push_back(options.weight_decay);
  }
  if (form.decays) {
    numbers.push_back(1 - options.lr * options.weight_decay);
  }
  numbers.insert(numbers.end(), {1 - options.beta1, options.beta2, 1 - options.beta2, options.eps});
  numbers.insert(numbers.end(), roots.begin(), roots.end());
  numbers.insert(numbers.end(), step_sizes.begin(), step_sizes.end());
  return numbers;
}

UpdateForm form_of(const at::Tensor& param, bool maximizes) {
  return {.is_double = param.scalar_type() == at::kDouble, .maximizes = maximizes};
}

} // namespace

bool adam_step(
    at::TensorList params,
    at::TensorList grads,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList steps,
    const AdamOptions& options) {
  if (!fit({params, grads, exp_avgs, exp_avg_sqs}) || steps.size() != params.size() || !are_counts(steps) ||
      !may_share_a_kernel()) {
    return false;
  }
  UpdateForm form = form_of(params[0], options.maximize);
  (options.decoupled_weight_decay ? form.decays : form.adds_weights) = options.weight_decay != 0;
  const std::vector<double> numbers = adam_numbers(steps, options, form);
  if (numbers.empty() || !are_small(numbers)) {
    return false;
  }
  for (const at::Tensor& step : steps) {
    StepCount(step).count_up();
  }
  record({params, exp_avgs, exp_avg_sqs}, grads, numbers, adam_update(form));
  return true;
}

bool sgd_step(at::TensorList params, at::TensorList grads, at::TensorList buffers, const SgdOptions& options) {
  const bool has_momentum = options.momentum != 0;
  if (!(has_momentum ? fit({params, grads, buffers}) : fit({params, grads})) || !may_share_a_kernel()) {
    return false;
  }
  UpdateForm form = form_of(params[0], options.maximize);
  form.adds_weights = options.weight_decay != 0;
  form.has_momentum = has_momentum;
  std::vector<double> numbers;
  if (form.adds_weights) {
    numbers.push_back(options.weight_decay);
  }
  if (has_momentum) {
    numbers.insert(numbers.end(), {options.momentum, 1 - options.dampening});
  }
  numbers.push_back(-options.lr);
  if (!are_small(numbers)) {
    return false;
  }
  has_momentum ? record({params, buffers}, grads, numbers, sgd_update(form))
               : record({params}, grads, numbers, sgd_update(form));
  return true;
}

} // namespace lazyplug::native
