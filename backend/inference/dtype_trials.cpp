#include "backend/inference/dtype_trials.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "backend/inference/stand_in_arguments.h"
#include "common/hash.h"
#include "device/cpu_allocator.h"
#include "lowering/execution/execution_guard.h"
#include "lowering/execution/warnings.h"

namespace lazyplug {
namespace {

using DtypeOrGiven = std::optional<c10::ScalarType>;

// Kernels that the program cannot call take for granted that their arguments fit together.
bool checks_arguments(const OpInfo& op) {
  constexpr std::string_view kInner[] = {
      "_softmax",
      "_log_softmax",
      "_cdist_forward",
      "_euclidean_dist",
      "_prelu_kernel",
      "_linalg_det",
      "_linalg_slogdet",
      "_linalg_eigvals",
      "_upsample_bilinear2d_aa",
      "_upsample_bicubic2d_aa",
  };
  std::string_view name = op.base_name();
  constexpr std::string_view kNamespace = "aten::";
  if (!name.starts_with(kNamespace)) {
    return false;
  }
  name.remove_prefix(kNamespace.size());
  const bool is_inner =
      name.starts_with('_') && std::find(std::begin(kInner), std::end(kInner), name) == std::end(kInner);
  return !is_inner && !op.random() && !op.is_foreach() && name.find("backward") == std::string_view::npos;
}

c10::ScalarType dtype_of(const c10::TensorImpl& tensor) {
  return c10::typeMetaToScalarType(tensor.dtype());
}

// Which kernels refuse as factors, as limits and as steps.
bool has_nonpositive_number(const Call& call) {
  return std::any_of(call.scalars.begin(), call.scalars.end(), [](const c10::IValue& number) {
    return number.isDouble() && !(number.toDouble() > 0);
  });
}

bool has_strings(const c10::Stack& stack) {
  return std::any_of(stack.begin(), stack.end(), [](const c10::IValue& argument) { return argument.isString(); });
}

bool is_dtype(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  return type->kind() == c10::TypeKind::ScalarTypeType;
}

// Of what is no tensor, its type, which promotes; and its value, if it may decide what a kernel takes.
uint64_t word_of(const c10::IValue& value, const c10::Argument& argument) {
  enum : uint64_t { kOther, kInt, kDouble, kFalse, kTrue, kFirstDtype };
  if (value.isInt()) {
    return is_dtype(argument) ? kFirstDtype + static_cast<uint64_t>(value.toInt()) : kInt;
  }
  return value.isDouble() ? kDouble : !value.isBool() ? kOther : value.toBool() ? kTrue : kFalse;
}

// However many tensors of one dtype follow each other: lists may have any length.
Hash128 key_of(const Call& call, c10::ArrayRef<c10::IValue> arguments) {
  constexpr uint64_t kUndefined = 255;
  Hash128 key = hash_combine(Hash128{}, reinterpret_cast<uintptr_t>(call.op));
  key = hash_combine(key, call.ranges.word());
  std::optional<uint64_t> last;
  for (const TensorArg& arg : call.tensors) {
    const bool is_number = arg.tensor && arg.tensor->is_wrapped_number();
    const bool has_dims = arg.tensor && arg.tensor->dim() != 0; // others do not promote its dtype
    const auto dtype = arg.tensor ? static_cast<uint64_t>(dtype_of(*arg.tensor)) : kUndefined;
    const uint64_t word = 4 * dtype + (has_dims ? 2 : 0) + (is_number ? 1 : 0);
    key = last == word ? key : hash_combine(key, word);
    last = word;
  }
  const auto& schema = call.op->handle().schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    key = arguments[i].isString() ? hash_bytes(arguments[i].toStringView(), key)
                                  : hash_combine(key, word_of(arguments[i], schema[i]));
  }
  return key;
}

// Other than float or double for all.
bool has_unusual_dtypes(const Call& call) {
  std::optional<c10::ScalarType> known;
  for (const TensorArg& arg : call.tensors) {
    if (!arg.tensor || arg.tensor->is_wrapped_number()) {
      continue;
    }
    const auto dtype = dtype_of(*arg.tensor);
    if ((dtype != at::kFloat && dtype != at::kDouble) || known.value_or(dtype) != dtype) {
      return true;
    }
    known = dtype;
  }
  return false;
}

using Dtypes = std::vector<c10::ScalarType>;

// Of zeros, or of ones: zeros are no arguments for every op. Nothing if they are not accepted; then `lacks_kernel` is
// set if there is no kernel for these dtypes.
std::optional<Dtypes>
dtypes_of_results(const OpInfo& op, const c10::Stack& arguments, DtypeOrGiven dtype, bool* lacks_kernel) {
  constexpr size_t kEnough = 1 << 20;
  for (const int fill : {0, 1}) {
    c10::Stack stack = of_one_element(arguments, fill, dtype);
    try {
      const AllocationLimit small(kEnough);
      op.handle().callBoxed(stack);
    } catch (const c10::NotImplementedError&) {
      *lacks_kernel = true;
      break;
    } catch (...) {
      continue; // perhaps the other ones
    }
    Dtypes dtypes;
    for (const c10::IValue& result : stack) {
      const bool has_dtype = result.isTensor() && result.toTensor().defined();
      dtypes.push_back(has_dtype ? result.toTensor().scalar_type() : c10::ScalarType::Undefined);
    }
    return dtypes;
  }
  return std::nullopt;
}

// Returns what the kernel has warned of and will not again, when the call itself runs.
std::vector<c10::Warning> ask_kernel(const Call& call, const c10::Stack& stack, DtypeTrial* trial) {
  const ExecutionGuard guard;
  WarningCollector warnings;
  const c10::Stack arguments = StandInArguments(call, c10::kMeta).make(stack);
  bool lacks_kernel = false;
  const auto results_of = [&](DtypeOrGiven dtype) {
    return dtypes_of_results(*call.op, arguments, dtype, &lacks_kernel);
  };
  const auto results = results_of(std::nullopt);
  std::vector<c10::Warning> once = warnings.take();
  if (!once.empty()) {
    results_of(std::nullopt);
    once = not_repeated(std::move(once), warnings.take());
  }
  if (results) {
    trial->results = *results;
  } else {
    const auto accepts = [&](c10::ScalarType dtype) { return results_of(dtype).has_value(); };
    trial->may_refuse = lacks_kernel || accepts(at::kFloat) || accepts(at::kLong) || accepts(at::kBool) ||
                        has_unusual_dtypes(call) || has_strings(stack) || has_nonpositive_number(call);
  }
  return once;
}

class Accepted {
 public:
  static Accepted& get() {
    static auto* const accepted = new Accepted(); // threads may record while the process ends
    return *accepted;
  }
  // Nothing if they are not known; else whether the Meta kernel is contradicted.
  std::optional<bool> find(const Hash128& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = contradicts_meta_.find(key);
    return found == contradicts_meta_.end() ? std::nullopt : std::optional(found->second);
  }
  void add(const Hash128& key, bool contradicts_meta = false) {
    constexpr size_t kMost = 1 << 16;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (contradicts_meta_.size() == kMost && !contradicts_meta_.contains(key)) {
      contradicts_meta_.clear(); // kernels are asked anew
    }
    contradicts_meta_[key] |= contradicts_meta;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Hash128, bool> contradicts_meta_;
};

} // namespace

DtypeTrial try_dtypes(const Call& call, const c10::Stack& stack) {
  if (call.tensors.empty() || !checks_arguments(*call.op)) {
    return {};
  }
  DtypeTrial trial;
  trial.key = key_of(call, stack);
  if (const auto known = Accepted::get().find(trial.key)) {
    trial.contradicts_meta = *known;
    return trial;
  }
  show_warnings(ask_kernel(call, stack, &trial));
  if (!trial.may_refuse) {
    Accepted::get().add(trial.key);
  }
  return trial;
}

bool contradicts(const DtypeTrial& trial, const Signature& promise) {
  if (trial.contradicts_meta) {
    return true;
  }
  size_t output = 0;
  for (size_t i = 0; i < trial.results.size() && i < promise.returns.size(); ++i) {
    const ReturnBinding& binding = promise.returns[i];
    if (binding.kind == ReturnBinding::Kind::kFreshList) {
      output += binding.index;
    }
    if (binding.kind != ReturnBinding::Kind::kFresh) {
      continue;
    }
    const c10::ScalarType promised = promise.outputs[output++].dtype;
    if (trial.results[i] != c10::ScalarType::Undefined && trial.results[i] != promised) {
      Accepted::get().add(trial.key, /*contradicts_meta=*/true);
      return true;
    }
  }
  return false;
}

void accept_dtypes(const Call& call, const Hash128& key) {
  const auto is_empty = [](const TensorArg& arg) { return arg.tensor && arg.tensor->numel() == 0; };
  if (std::none_of(call.tensors.begin(), call.tensors.end(), is_empty)) {
    Accepted::get().add(key);
  }
}

} // namespace lazyplug
