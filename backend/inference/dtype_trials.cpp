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
  constexpr std::string_view kInner[] =
      {"_softmax", "_log_softmax", "_cdist_forward", "_euclidean_dist", "_prelu_kernel"};
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

// However many tensors of one dtype follow each other: lists may have any length.
Hash128 key_of(const Call& call) {
  constexpr uint64_t kUndefined = 255;
  Hash128 key = hash_combine(Hash128{}, reinterpret_cast<uintptr_t>(call.op));
  std::optional<uint64_t> last;
  for (const TensorArg& arg : call.tensors) {
    const bool is_number = arg.tensor && arg.tensor->is_wrapped_number();
    const bool has_dims = arg.tensor && arg.tensor->dim() != 0; // others do not promote its dtype
    const auto dtype = arg.tensor ? static_cast<uint64_t>(dtype_of(*arg.tensor)) : kUndefined;
    const uint64_t word = 4 * dtype + (has_dims ? 2 : 0) + (is_number ? 1 : 0);
    key = last == word ? key : hash_combine(key, word);
    last = word;
  }
  return key;
}

// Other than one floating dtype for all.
bool has_unusual_dtypes(const Call& call) {
  std::optional<c10::ScalarType> known;
  for (const TensorArg& arg : call.tensors) {
    if (!arg.tensor || arg.tensor->is_wrapped_number()) {
      continue;
    }
    const auto dtype = dtype_of(*arg.tensor);
    if (!c10::isFloatingType(dtype) || known.value_or(dtype) != dtype) {
      return true;
    }
    known = dtype;
  }
  return false;
}

using Dtypes = std::vector<c10::ScalarType>;

// Of zeros, or of ones: zeros are no arguments for every op. Nothing if they are not accepted.
std::optional<Dtypes> dtypes_of_results(const OpInfo& op, const c10::Stack& arguments, DtypeOrGiven dtype) {
  constexpr size_t kEnough = 1 << 20;
  for (const int fill : {0, 1}) {
    c10::Stack stack = of_one_element(arguments, fill, dtype);
    try {
      const AllocationLimit small(kEnough);
      op.handle().callBoxed(stack);
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
    const std::lock_guard<std::mutex> lock(mutex_);
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
  const Hash128 key = key_of(call);
  if (const auto known = Accepted::get().find(key)) {
    return {.may_refuse = false, .results = {}, .contradicts_meta = *known};
  }
  const ExecutionGuard guard;
  const WarningCollector unwanted;
  const c10::Stack arguments = StandInArguments(call, c10::kMeta).make(stack);
  auto results = dtypes_of_results(*call.op, arguments, std::nullopt);
  if (!results) {
    const auto accepts = [&](c10::ScalarType dtype) {
      return dtypes_of_results(*call.op, arguments, dtype).has_value();
    };
    if (accepts(at::kFloat) || accepts(at::kLong) || accepts(at::kBool) || has_unusual_dtypes(call)) {
      return {.may_refuse = true, .results = {}, .contradicts_meta = false};
    }
  }
  Accepted::get().add(key);
  return {.may_refuse = false, .results = std::move(results).value_or(Dtypes()), .contradicts_meta = false};
}

bool contradicts(const DtypeTrial& trial, const Call& call, const Signature& promise) {
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
      Accepted::get().add(key_of(call), /*contradicts_meta=*/true);
      return true;
    }
  }
  return false;
}

void accept_dtypes(const Call& call) {
  Accepted::get().add(key_of(call));
}

} // namespace lazyplug
