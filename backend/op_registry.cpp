#include "backend/op_registry.h"

#include <memory>
#include <unordered_map>

#include "backend/op_traits.h"
#include "common/fork_safe_mutex.h"

namespace lazyplug {

const OpInfo& op_info(const c10::OperatorHandle& handle) {
  static ForkSafeMutex mutex;
  static auto* ops = new std::unordered_map<c10::OperatorName, std::unique_ptr<const OpInfo>>();
  const ForkSafeLock lock(mutex);
  auto& op = (*ops)[handle.operator_name()];
  if (!op) {
    op = std::make_unique<const OpInfo>(handle, traits_of(handle.operator_name()));
  }
  return *op;
}

const OpInfo& op_info(const char* name, const char* overload) {
  return op_info(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
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
