#include "backend/inference/dtype_trials.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_set>

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
    const auto dtype = arg.tensor ? static_cast<uint64_t>(dtype_of(*arg.tensor)) : kUndefined;
    const uint64_t word = 2 * dtype + (is_number ? 1 : 0);
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

// Of zeros, or of ones: zeros are no arguments for every op.
bool is_accepted(const OpInfo& op, const c10::Stack& arguments, DtypeOrGiven dtype) {
  constexpr size_t kEnough = 1 << 20;
  for (const int fill : {0, 1}) {
    c10::Stack stack = of_one_element(arguments, fill, dtype);
    try {
      const AllocationLimit small(kEnough);
      op.handle().callBoxed(stack);
      return true;
    } catch (...) {
      // Perhaps the other ones.
    }
  }
  return false;
}

class Accepted {
 public:
  static Accepted& get() {
    static auto* const accepted = new Accepted(); // threads may record while the process ends
    return *accepted;
  }
  bool contains(const Hash128& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return keys_.contains(key);
  }
  void add(const Hash128& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    keys_.insert(key);
  }

 private:
  std::mutex mutex_;
  std::unordered_set<Hash128> keys_;
};

} // namespace

bool may_refuse_dtypes(const Call& call, const c10::Stack& stack) {
  if (call.tensors.empty() || !checks_arguments(*call.op)) {
    return false;
  }
  const Hash128 key = key_of(call);
  if (Accepted::get().contains(key)) {
    return false;
  }
  const ExecutionGuard guard;
  const WarningCollector unwanted;
  const c10::Stack arguments = StandInArguments(call, c10::kMeta).make(stack);
  if (!is_accepted(*call.op, arguments, std::nullopt)) {
    const auto is_accepted_as = [&](c10::ScalarType dtype) { return is_accepted(*call.op, arguments, dtype); };
    if (is_accepted_as(at::kFloat) || is_accepted_as(at::kLong) || is_accepted_as(at::kBool) ||
        has_unusual_dtypes(call)) {
      return true;
    }
  }
  Accepted::get().add(key);
  return false;
}

void accept_dtypes(const Call& call) {
  Accepted::get().add(key_of(call));
}

} // namespace lazyplug
