#include "backend/ops/op_registry.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "backend/ops/op_table.h"
#include "common/fork_safe_mutex.h"

namespace lazyplug {
namespace {

// Namespaces of ops that PyTorch brings along.
constexpr std::string_view kOwnNamespaces[] = {
    "aten",
    "lazyplug",
    "prims",
    "quantized",
    "_quantized",
    "quantized_decomposed",
    "mkldnn",
    "onednn",
    "inductor",
    "c10d",
    "_c10d_functional",
};

// True for ops of other libraries. Of PyTorch's own, all that do have a row.
bool numbers_may_decide_shapes(const c10::OperatorName& name) {
  const auto own = name.getNamespace();
  return !own || std::find(std::begin(kOwnNamespaces), std::end(kOwnNamespaces), *own) == std::end(kOwnNamespaces);
}

class OpRegistry {
 public:
  // Never destroyed: ops are still deregistered when the process ends.
  static OpRegistry& get() {
    static auto* registry = new OpRegistry();
    return *registry;
  }

  const OpInfo& describe(const c10::OperatorHandle& handle) {
    if (const OpInfo* known = find(handle)) {
      return *known;
    }
    // Without the lock: who describes an op takes others.
    auto described = std::make_unique<OpInfo>(handle, traits(handle.operator_name()));
    const ForkSafeLock lock(mutex_);
    return *ops_.try_emplace(handle, std::move(described)).first->second;
  }

  void declare_numbers_inputs(const std::string& name) {
    const ForkSafeLock lock(mutex_);
    numbers_are_inputs_.insert(name);
    for (auto op = ops_.begin(); op != ops_.end();) {
      const auto next = std::next(op);
      if (op->second->name() == name || op->second->base_name() == name) {
        replaced_.push_back(std::move(ops_.extract(op).mapped()));
      }
      op = next;
    }
  }

  // Null if nobody has asked for it.
  OpInfo* find(const c10::OperatorHandle& handle) {
    const ForkSafeLock lock(mutex_);
    const auto found = ops_.find(handle);
    return found == ops_.end() ? nullptr : found->second.get();
  }

  void retire(const c10::OperatorHandle& handle) {
    const ForkSafeLock lock(mutex_);
    const auto found = ops_.find(handle);
    if (found != ops_.end()) {
      found->second->retire();
      replaced_.push_back(std::move(ops_.extract(found).mapped()));
    }
  }

 private:
  class Listener final : public c10::OpRegistrationListener {
    void onOperatorRegistered(const c10::OperatorHandle& /*op*/) override {}
    void onOperatorDeregistered(const c10::OperatorHandle& op) override {
      get().retire(op);
    }
  };

  OpRegistry() : registration_(c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>())) {}

  OpTraits traits(const c10::OperatorName& name) {
    OpTraits traits = OpTable::get().traits(name);
    const ForkSafeLock lock(mutex_);
    traits.scalars_are_constants |= numbers_may_decide_shapes(name) && numbers_are_inputs_.count(name.name) == 0 &&
                                    numbers_are_inputs_.count(c10::toString(name)) == 0;
    return traits;
  }

  // The dispatcher's lock comes before it.
  ForkSafeMutex mutex_; // guards all members below
  std::unordered_map<c10::OperatorHandle, std::unique_ptr<OpInfo>> ops_;
  std::vector<std::unique_ptr<OpInfo>> replaced_; // traces, signatures and graphs still point to them
  std::unordered_set<std::string> numbers_are_inputs_;
  const c10::RegistrationHandleRAII registration_;
};

} // namespace

const OpInfo& op_info(const c10::OperatorHandle& handle) {
  return OpRegistry::get().describe(handle);
}

const OpInfo& op_info(const char* name, const char* overload) {
  return op_info(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

OpInfo* find_op(const std::string& name) {
  const auto handle = c10::Dispatcher::singleton().findSchema(parse_op_name(name));
  return handle ? OpRegistry::get().find(*handle) : nullptr;
}

void declare_numbers_inputs(const std::string& name) {
  OpRegistry::get().declare_numbers_inputs(name);
}

std::vector<c10::OperatorHandle> ops_of(std::string_view name_space) {
  std::vector<c10::OperatorHandle> ops;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.starts_with(name_space)) {
      if (const auto handle = dispatcher.findSchema(name)) {
        ops.push_back(*handle);
      }
    }
  }
  return ops;
}

const std::vector<c10::OperatorHandle>& aten_ops() {
  static const auto* ops = new std::vector<c10::OperatorHandle>(ops_of("aten::"));
  return *ops;
}

} // namespace lazyplug
