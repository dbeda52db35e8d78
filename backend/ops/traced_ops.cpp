#include "backend/ops/traced_ops.h"

#include <algorithm>

#include "backend/ops/op_registry.h"
#include "backend/ops/op_table.h"

namespace lazyplug {
namespace {

bool has_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.hasKernelForDispatchKey(key);
}

bool is_composite_explicit(const c10::OperatorHandle& op) {
  return has_kernel(op, c10::DispatchKey::CompositeExplicitAutograd) ||
         has_kernel(op, c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// There must be a kernel to run. One composed of differentiable ops does not
// count: autograd is to see those. A few ops have one besides their CPU kernel,
// and on the CPU it is the latter that runs.
bool has_kernel_to_run(const c10::OperatorHandle& op) {
  return has_kernel(op, c10::DispatchKey::CPU) ||
         (is_composite_explicit(op) && !has_kernel(op, c10::DispatchKey::CompositeImplicitAutograd));
}

// Without a Generator argument, a kernel would draw from the CPU's generator.
bool draws_from_our_generator(const OpInfo& op) {
  const auto is_generator = [](const ArgInfo& arg) { return arg.kind == ArgKind::kGenerator; };
  return !op.random() || std::any_of(op.args().begin(), op.args().end(), is_generator);
}

} // namespace

bool is_traced(const c10::OperatorHandle& handle) {
  const bool is_left_alone = OpTable::get().is_left_alone(handle.operator_name());
  if (!has_kernel_to_run(handle) || handle.hasTag(at::Tag::inplace_view) || is_left_alone) {
    return false;
  }
  const OpInfo& op = op_info(handle);
  return op.traceable() && draws_from_our_generator(op);
}

} // namespace lazyplug
