#include "lowering/nodes/out_variants.h"

#include "lowering/ir/op_variants.h"

namespace lazyplug {
namespace {

bool has_out_of(const c10::FunctionSchema& schema, const c10::FunctionSchema& other) {
  return takes_arguments_of(schema, other, 1) && other.arguments().back().is_out() && other.returns().size() == 1;
}

std::optional<c10::OperatorHandle> look_up_out_variant(const OpInfo& op) {
  const auto& handle = op.handle();
  if (!op.is_aten() || op.writes() || op.num_returns() != 1 || op.fusion() != FusionClass::kPointwise ||
      !handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) {
    return std::nullopt;
  }
  for (const std::string& overload : {std::string("out"), op.overload() + "_out", std::string("grad_input")}) {
    const auto found = c10::Dispatcher::singleton().findSchema({op.base_name(), overload});
    if (found && has_out_of(handle.schema(), found->schema())) {
      return found;
    }
  }
  return std::nullopt;
}

} // namespace

const c10::OperatorHandle* find_out_variant(const OpInfo& op) {
  static auto* variants = new OpVariants<std::optional<c10::OperatorHandle>>(look_up_out_variant);
  const auto& variant = variants->of(op);
  return variant ? &*variant : nullptr;
}

} // namespace lazyplug
