#include "backend/recording/fast_ops.h"

#include "backend/ops/op_registry.h"
#include "backend/ops/op_table.h"

namespace lazyplug {

void register_fast_ops(torch::Library& library) {
  for (const OpRow& row : OpTable::get().rows()) {
    if (row.fast.kernel) {
      library.impl(row.op, row.fast.kernel(op_info(row.fast.name, row.fast.overload)));
    }
  }
}

void register_fast_autograd(torch::Library& library) {
  for (const OpRow& row : OpTable::get().rows()) {
    if (!row.fast.autograd_kernel) {
      continue;
    }
    const OpInfo& op = op_info(row.fast.name, row.fast.overload);
    // A composite kernel, such as that of silu_backward, would stand where we look for autograd's.
    if (!op.handle().hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      library.impl(row.op, row.fast.autograd_kernel(op));
    }
  }
}

} // namespace lazyplug
