#include "backend/native/optimizers.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "backend/caches/beginnings.h"
#include "backend/execution/lazy_storage.h"
#include "backend/ops/borrowed_tensors.h"
#include "backend/ops/op_registry.h"
#include "backend/recording/fast_kernels.h"
#include "backend/recording/force_fallback.h"
#include "backend/recording/tracer.h"
#include "common/config.h"
#include "common/small_set.h"
#include "lowering/calls/optimizer_programs.h"
#include "lowering/calls/runtime_ops.h"
#include "lowering/passes/pass.h"

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
      !has_updates(params[0].scalar_type()) || !is_unobserved(params[0]) || c10::GradMode::is_enabled()) {
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

BorrowedTensors concatenate(TensorLists lists) {
  BorrowedTensors all;
  all.reserve(lists.size() * lists[0].size());
  for (const at::TensorList& list : lists) {
    for (const at::Tensor& tensor : list) {
      all.add(tensor);
    }
  }
  return all;
}

void record(TensorLists written, at::TensorList read, c10::ArrayRef<double> numbers, const Update& update) {
  static const OpInfo& op = op_info(kTileUpdate, "");
  note_update();
  const BorrowedTensors borrowed = concatenate(written);
  const at::TensorList all_written = borrowed;
  const c10::IValue scalars = to_list(numbers);
  const auto rows = static_cast<int64_t>(written[0].size());
  const bool is_predicted = predict(op, all_written[0], [&](PredictedCall& call) {
                              return call.add(all_written) && call.add(read) && call.add(scalars) && call.add(rows) &&
                                     call.add(std::string_view(update.program));
                            }).has_value();
  if (!is_predicted) {
    c10::Stack stack;
    torch::jit::push(stack, all_written.vec(), read.vec(), scalars, rows, update.program);
    trace_unpredicted(op, &stack);
  }
  for (size_t i = 0; i < written.size(); ++i) {
    bump_versions(written[i], update.num_writes[i]);
  }
}

// ---- numbers on the CPU ----

// What torch.optim counts steps with, such as a tensor of no dimensions.
class HostNumber {
 public:
  static bool is_one(const at::Tensor& tensor) {
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    const bool is_plain = impl.is_cpu() && impl.layout() == c10::kStrided && impl.numel() == 1 && !impl.is_neg();
    return is_plain && !impl.key_set().has(c10::DispatchKey::Python) && !tensor.requires_grad() &&
           !tensor.is_inference() && (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble);
  }

  explicit HostNumber(const at::Tensor& tensor) : tensor_(tensor), is_float_(tensor.scalar_type() == at::kFloat) {}

  // As the CPU computes them, in the tensor's dtype.
  double plus_one() const {
    return is_float_ ? value<float>() + 1.F : value<double>() + 1.;
  }
  double times(double factor) const {
    return is_float_ ? value<float>() * static_cast<float>(factor) : value<double>() * factor;
  }
  void set(double number) const {
    if (is_float_) {
      *tensor_.mutable_data_ptr<float>() = static_cast<float>(number);
    } else {
      *tensor_.mutable_data_ptr<double>() = number;
    }
    tensor_.unsafeGetTensorImpl()->bump_version();
  }

 private:
  template <typename T>
  T value() const {
    return *tensor_.const_data_ptr<T>();
  }

  const at::Tensor& tensor_;
  const bool is_float_;
};

bool are_host_numbers(c10::ArrayRef<at::TensorList> lists, size_t num_rows) {
  SmallSet<const c10::StorageImpl*> seen;
  return std::all_of(lists.begin(), lists.end(), [&](const at::TensorList& list) {
    return list.size() == num_rows && std::all_of(list.begin(), list.end(), [&](const at::Tensor& number) {
             return HostNumber::is_one(number) &&
                    seen.insert(number.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
           });
  });
}

// Of one parameter, after the step.
struct Progress {
  double step = 0;
  double product = 1; // of NAdam's momenta

  friend bool operator==(const Progress&, const Progress&) = default;
};

// ---- the optimisers ----

using RowNumbers = c10::SmallVector<double, 3>;

// A step that is to be recorded.
struct Draft {
  UpdateForm form;
  c10::SmallVector<at::TensorList, 5> kept;
  c10::SmallVector<at::TensorList, 2> on_host; // the steps, if they are counted, and the products, if there are some
  c10::SmallVector<double, 8> numbers;         // after those of the form, see Optimizer
  RowNumbers (*by_row)(const StepOptions& options, const Progress& progress) = nullptr;
};

double correction(double beta, const Progress& progress) {
  return 1 - std::pow(beta, progress.step);
}

// None where Python would raise, as one divides by zero. Where it makes complex numbers, as roots of negative ones,
// NaN.
RowNumbers adam_rows(const StepOptions& options, const Progress& progress) {
  const double first = correction(options["beta1"], progress);
  if (first == 0) {
    return {};
  }
  return {std::pow(correction(options["beta2"], progress), 0.5), options["lr"] / first * -1};
}

RowNumbers adamax_rows(const StepOptions& options, const Progress& progress) {
  const double first = correction(options["beta1"], progress);
  return first == 0 ? RowNumbers() : RowNumbers{options["lr"] / first * -1};
}

RowNumbers adagrad_rows(const StepOptions& options, const Progress& progress) {
  const double divisor = 1 + (progress.step - 1) * options["lr_decay"];
  return divisor == 0 ? RowNumbers() : RowNumbers{-options["lr"] / divisor};
}

double nadam_momentum(const StepOptions& options, double step) {
  return options["beta1"] * (1. - 0.5 * std::pow(0.96, step * options["momentum_decay"]));
}

RowNumbers nadam_rows(const StepOptions& options, const Progress& progress) {
  const double lr = options["lr"];
  const double momentum = nadam_momentum(options, progress.step);
  const double next = nadam_momentum(options, progress.step + 1);
  const double of_gradient = 1. - progress.product;
  const double of_average = 1. - progress.product * next;
  if (of_gradient == 0 || of_average == 0) {
    return {};
  }
  return {
      std::pow(correction(options["beta2"], progress), 0.5),
      lr * (1. - momentum) / of_gradient * -1,
      lr * next / of_average * -1};
}

RowNumbers radam_rows(const StepOptions& options, const Progress& progress) {
  const double lr = options["lr"];
  const double t = progress.step;
  const double first = correction(options["beta1"], progress);
  const double second = correction(options["beta2"], progress);
  if (options["beta2"] == 1 || first == 0 || second == 0) {
    return {};
  }
  const double longest = 2 / (1 - options["beta2"]) - 1;
  const double length = longest - 2 * t * std::pow(options["beta2"], t) / second;
  const double divisor = (longest - 4) * (longest - 2) * length;
  if (length > 5 && divisor == 0) {
    return {};
  }
  const double rectified = length > 5 ? std::pow((length - 4) * (length - 2) * longest / divisor, 0.5) : 0;
  const double is_not = rectified > 0 ? 0 : 1;
  return {std::pow(second, 0.5) * (lr * rectified / first) * -1, lr * is_not / first * -1};
}

// By name: what torch.optim's function is given, in its order, but for parameters and gradients, which are the first
// two lists.
using Prepare = void (*)(TensorLists lists, const StepOptions& options, Draft& draft);

struct Rule {
  std::string_view name;
  Optimizer optimizer;
  size_t num_lists;
  Prepare prepare;
};

constexpr Rule kRules[] = {
    {"adadelta",
     Optimizer::kAdadelta,
     5,
     [](TensorLists lists, const StepOptions& options, Draft& draft) {
       draft.kept = {lists[2], lists[3]};
       draft.on_host = {lists[4]};
       draft.numbers = {options["rho"], 1 - options["rho"], options["eps"], -options["lr"]};
     }},
    {"adagrad",
     Optimizer::kAdagrad,
     4,
     [](TensorLists lists, const StepOptions& options, Draft& draft) {
       draft.kept = {lists[2]};
       draft.on_host = {lists[3]};
       draft.numbers = {1, options["eps"]};
       draft.by_row = adagrad_rows;
     }},
    {"adam",
     Optimizer::kAdam,
     6,
     [](TensorLists lists, const StepOptions& options, Draft& draft) {
       draft.kept = {lists[2], lists[3]};
       draft.form.keeps_maximum = options["amsgrad"] != 0;
       if (draft.form.keeps_maximum) {
         draft.kept.push_back(lists[4]);
       }
       draft.on_host = {lists[5]};
       draft.numbers = {1 - options["beta1"], options["beta2"], 1 - options["beta2"], options["eps"]};
       draft.by_row = adam_rows;
     }},
    {"adamax",
     Optimizer::kAdamax,
     5,
     [](TensorLists lists, const StepOptions& options, Draft& draft) {
       draft.kept = {lists[2], lists[3]};
       draft.on_host = {lists[4]};
       draft.numbers = {1 - options["beta1"], options["beta2"], options["eps"]};
       draft.by_row = adamax_rows;
     }},
    {"nadam",
     Optimizer::kNAdam,
     6,
     [](TensorLists lists, const StepOptions& options, Draft& draft) {
       draft.kept = {lists[2], lists[3]};
       draft.on_host = {lists[5], lists[4]};
       draft.numbers = {1 - options["beta1"], options["beta2"], 1 - options["beta2"], options["eps"]};
       draft.by_row = nadam_rows;
     }},
    {"radam",
     Optimizer::kRAdam,
     5,
     [](TensorLists lists, const StepOptions& options, Draft& draft) {
       draft.kept = {lists[2], lists[3]};
       draft.on_host = {lists[4]};
       draft.numbers = {1 - options["beta1"], options["beta2"], 1 - options["beta2"], options["eps"], 1};
       draft.by_row = radam_rows;
     }},
    {"rmsprop",
     Optimizer::kRMSprop,
     6,
     [](TensorLists lists, const StepOptions& options, Draft& draft) {
       draft.form.is_centered = options["centered"] != 0;
       draft.form.has_momentum = options["momentum"] > 0;
       draft.kept = {lists[2]};
       draft.numbers = {options["alpha"], 1 - options["alpha"]};
       if (draft.form.is_centered) {
         draft.kept.push_back(lists[3]);
         draft.numbers.append({1 - options["alpha"], -1});
       }
       draft.numbers.push_back(options["eps"]);
       if (draft.form.has_momentum) {
         draft.kept.push_back(lists[4]);
         draft.numbers.append({options["momentum"], 1});
       }
       draft.on_host = {lists[5]};
       draft.numbers.push_back(-options["lr"]);
     }},
    {"sgd",
     Optimizer::kSGD,
     3,
     [](TensorLists lists, const StepOptions& options, Draft& draft) {
       draft.form.has_momentum = options["momentum"] != 0;
       draft.form.is_nesterov = draft.form.has_momentum && options["nesterov"] != 0;
       if (draft.form.has_momentum) {
         draft.kept = {lists[2]};
         draft.numbers = {options["momentum"], 1 - options["dampening"]};
       }
       if (draft.form.is_nesterov) {
         draft.numbers.push_back(options["momentum"]);
       }
       draft.numbers.push_back(-options["lr"]);
     }},
};

const Rule* find_rule(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& rule) { return rule.name == name; });
  return found == std::end(kRules) ? nullptr : found;
}

// Whether none of the other variants is asked for.
bool is_usual(const StepOptions& options) {
  constexpr std::string_view kUnusual[] =
      {"capturable", "differentiable", "found_inf", "fused", "grad_scale", "has_complex", "has_sparse_grad"};
  return (!options.has("foreach") || options["foreach"] != 0) &&
         std::none_of(std::begin(kUnusual), std::end(kUnusual), [&](std::string_view name) {
           return options[name] != 0;
         });
}

// How far each parameter will be; once if it is the same for all.
std::vector<Progress> next_progress(const Draft& draft, const StepOptions& options) {
  if (draft.on_host.empty()) {
    return {};
  }
  std::vector<Progress> progress(draft.on_host[0].size());
  for (size_t i = 0; i < progress.size(); ++i) {
    progress[i].step = HostNumber(draft.on_host[0][i]).plus_one();
    if (draft.on_host.size() > 1) {
      progress[i].product = HostNumber(draft.on_host[1][i]).times(nadam_momentum(options, progress[i].step));
    }
  }
  const bool are_alike =
      std::all_of(progress.begin(), progress.end(), [&](const Progress& each) { return each == progress[0]; });
  progress.resize(are_alike ? 1 : progress.size());
  return progress;
}

void go_on(const Draft& draft, const std::vector<Progress>& progress) {
  for (size_t list = 0; list < draft.on_host.size(); ++list) {
    for (size_t i = 0; i < draft.on_host[list].size(); ++i) {
      const Progress& next = progress.size() == 1 ? progress[0] : progress[i];
      HostNumber(draft.on_host[list][i]).set(list == 0 ? next.step : next.product);
    }
  }
}

// As tile_update_ takes them, and as Python computes them. Empty where that would raise, or make no real numbers.
std::vector<double> numbers_of(const Draft& draft, const StepOptions& options, const std::vector<Progress>& progress) {
  std::vector<double> numbers;
  if (draft.form.adds_weights) {
    numbers.push_back(options["weight_decay"]);
  }
  if (draft.form.decays) {
    numbers.push_back(1 - options["lr"] * options["weight_decay"]);
  }
  numbers.insert(numbers.end(), draft.numbers.begin(), draft.numbers.end());
  if (draft.by_row) {
    std::vector<RowNumbers> rows;
    for (const Progress& each : progress) {
      rows.push_back(draft.by_row(options, each));
      if (rows.back().empty()) {
        return {};
      }
    }
    for (size_t place = 0; place < rows[0].size(); ++place) {
      for (const RowNumbers& row : rows) {
        numbers.push_back(row[place]);
      }
    }
  }
  return are_small(numbers) ? numbers : std::vector<double>();
}

} // namespace

const std::pair<std::string_view, double>* StepOptions::find(std::string_view name) const {
  const auto* found =
      std::find_if(values_.begin(), values_.end(), [&](const auto& value) { return value.first == name; });
  return found == values_.end() ? nullptr : found;
}

bool StepOptions::has(std::string_view name) const {
  return find(name) != nullptr;
}

double StepOptions::operator[](std::string_view name) const {
  const auto* value = find(name);
  return value ? value->second : 0;
}

bool optimizer_step(std::string_view name, TensorLists lists, const StepOptions& options) {
  const Rule* rule = find_rule(name);
  if (!rule || lists.size() != rule->num_lists || lists[0].empty() || !is_usual(options) || !may_share_a_kernel()) {
    return false;
  }
  Draft draft;
  draft.form.dtype = lists[0][0].scalar_type();
  draft.form.maximizes = options["maximize"] != 0;
  (options["decoupled_weight_decay"] != 0 ? draft.form.decays : draft.form.adds_weights) = options["weight_decay"] != 0;
  rule->prepare(lists, options, draft);
  c10::SmallVector<at::TensorList, 6> on_device{lists[0]};
  on_device.append(draft.kept.begin(), draft.kept.end());
  on_device.push_back(lists[1]);
  if (!fit(on_device) || !are_host_numbers(draft.on_host, lists[0].size())) {
    return false;
  }
  const std::vector<Progress> progress = next_progress(draft, options);
  const std::vector<double> numbers = numbers_of(draft, options, progress);
  const Update* update = update_of(rule->optimizer, draft.form);
  if (numbers.empty() || !update) {
    return false;
  }
  go_on(draft, progress);
  const size_t num_written = on_device.size() - (draft.form.writes_gradients() ? 0 : 1);
  const at::TensorList read = draft.form.writes_gradients() ? at::TensorList() : lists[1];
  record(TensorLists(on_device).slice(0, num_written), read, numbers, *update);
  return true;
}

} // namespace lazyplug::native
