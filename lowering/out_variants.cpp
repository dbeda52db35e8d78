#include "lowering/out_variants.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "common/fork_safe_mutex.h"

namespace lazyplug {
namespace {

bool takes_the_same(const c10::FunctionSchema& schema, const c10::FunctionSchema& with_out) {
  const auto& args = schema.arguments();
  const auto& others = with_out.arguments();
  const auto same = [](const c10::Argument& a, const c10::Argument& b) {
    return a.name() == b.name() && *a.type() == *b.type();
  };
  return others.size() == args.size() + 1 && others.back().is_out() && with_out.returns().size() == 1 &&
         std::equal(args.begin(), args.end(), others.begin(), same);
}

std::optional<c10::OperatorHandle> find(const OpInfo& op) {
  const auto& handle = op.handle();
  if (!op.is_aten() || op.writes() || op.num_returns() != 1 || op.fusion() != FusionClass::kPointwise ||
      !handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) {
    return std::nullopt;
  }
  for (const std::string& overload : {std::string("out"), op.overload() + "_out", std::string("grad_input")}) {
    const auto found = c10::Dispatcher::singleton().findSchema({op.base_name(), overload});
    if (found && takes_the_same(handle.schema(), found->schema())) {
      return found;
    }
  }
  return std::nullopt;
}

class OutVariants {
 public:
  const c10::OperatorHandle* get(const OpInfo& op) {
    std::unique_lock<ForkSafeMutex> lock(mutex_);
    const auto known = variants_.find(&op);
    if (known != variants_.end()) {
      return known->second.get();
    }
    lock.unlock(); // the dispatcher has a lock of its own
    const auto found = find(op);
    lock.lock();
    auto variant = found ? std::make_unique<c10::OperatorHandle>(*found) : nullptr;
    return variants_.try_emplace(&op, std::move(variant)).first->second.get();
  }

 private:
  ForkSafeMutex mutex_; // guards the other member
  std::unordered_map<const OpInfo*, std::unique_ptr<c10::OperatorHandle>> variants_;
};

} // namespace

const c10::OperatorHandle* find_out_variant(const OpInfo& op) {
  static auto* variants = new OutVariants();
  return variants->get(op);
}

} // namespace lazyplug
