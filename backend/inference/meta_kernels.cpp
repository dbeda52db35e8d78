#include "backend/inference/meta_kernels.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "backend/ops/op_registry.h"
#include "backend/ops/op_table.h"
#include "backend/ops/results.h"
#include "lowering/calls/runtime_ops.h"

// The composite kernels that PyTorch has for devices without kernels of their own
// are run on Meta tensors. That of a structured op asks the shape function that
// the CPU's kernel asks, too, and then calls the variant with out= arguments. Those
// of others are made of further ops. A mode sees all these calls: what would only
// write does nothing, views and memory are made as ever, and the rest is told in
// the same way.
namespace lazyplug {
namespace {

// A mode that PyTorch does not use itself.
constexpr auto kShapesOnly = c10::DispatchKey::TESTING_ONLY_GenericMode;

struct NotKnown {};

std::optional<c10::DispatchKey> composite_key(const c10::OperatorHandle& op) {
  const auto has = [&op](c10::DispatchKey key) { return op.hasKernelForDispatchKey(key); };
  if (has(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) {
    return c10::DispatchKey::CompositeExplicitAutogradNonFunctional;
  }
  // Where the CPU has a kernel, others may return something else.
  for (const auto key : {c10::DispatchKey::CompositeExplicitAutograd, c10::DispatchKey::CompositeImplicitAutograd}) {
    if (has(key) && !has(c10::DispatchKey::CPU)) {
      return key;
    }
  }
  return std::nullopt;
}

// Numbers are checked, as where the kernel runs; how large the tensor is that it
// fills makes no difference.
void fill_another(const OpInfo& op, size_t tensor, c10::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard as_ever(kShapesOnly);
  c10::Stack small = *stack;
  const at::Tensor written = small[tensor].toTensor();
  small[tensor] = at::zeros(std::vector<int64_t>(written.dim(), 1), written.options().device(at::kCPU));
  for (size_t i = 0; i < small.size(); ++i) {
    if (op.args()[i].kind == ArgKind::kGenerator && op.random()) {
      small[i] = seeded_generator(0);
    }
  }
  op.handle().callBoxed(small);
  replace_arguments(op, Results{written}, stack);
}

// The tensor that the call writes, if it is made of numbers and itself; or -1.
int only_tensor(const OpInfo& op) {
  int found = -1;
  for (size_t i = 0; i < op.num_args(); ++i) {
    const ArgKind kind = op.args()[i].kind;
    if (kind == ArgKind::kTensorList || (kind == ArgKind::kTensor && (found >= 0 || !op.args()[i].written))) {
      return -1;
    }
    found = kind == ArgKind::kTensor ? static_cast<int>(i) : found;
  }
  return op.num_returns() == 1 && op.return_aliases()[0] == found ? found : -1;
}

const ShapeRule* shape_rule(const OpInfo& op) {
  return OpTable::get().shape(op.handle().operator_name());
}

// The first kernel of all.
void tell(const OpInfo& op, c10::Stack* stack) {
  if (const ShapeRule* rule = shape_rule(op)) {
    replace_arguments(op, (*rule)(torch::jit::last(*stack, op.num_args())), stack);
  } else if (const auto key = composite_key(op.handle())) {
    op.handle().callBoxedForDispatchKey(*key, *stack);
  } else if (const int tensor = only_tensor(op); tensor >= 0 && !op.args()[tensor].out) {
    fill_another(op, tensor, stack);
  } else {
    throw NotKnown();
  }
}

bool returns_views(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return std::any_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
    return result.alias_info() && !result.alias_info()->isWrite();
  });
}

bool is_about_memory(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name == "aten::empty" || name == "aten::empty_strided" || name == "aten::_resize_output_" ||
         op.hasTag(at::Tag::inplace_view) || returns_views(op);
}

// What is to be resized first shows too late what it becomes.
bool may_be_resized(const OpInfo& op, const c10::Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.num_args());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (op.args()[i].out && (!arguments[i].isTensor() || arguments[i].toTensor().sizes() == c10::IntArrayRef({0}))) {
      return true;
    }
  }
  return false;
}

bool is_structured(const OpInfo& op) {
  return op.handle().hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// In place, by a Meta kernel or a rule of its own.
bool checks_what_it_writes(const OpInfo& op) {
  return (is_structured(op) || shape_rule(op)) &&
         std::none_of(op.args().begin(), op.args().end(), [](const ArgInfo& arg) { return arg.out; });
}

// A call that a composite kernel makes.
void tell_inner(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
  if (is_about_memory(handle)) {
    const c10::impl::ExcludeDispatchKeyGuard as_ever(kShapesOnly);
    return handle.callBoxed(*stack);
  }
  const OpInfo& op = op_info(handle);
  if (!op.writes() || checks_what_it_writes(op)) {
    return tell(op, stack);
  }
  if (!op.returns_only_arguments() || may_be_resized(op, *stack)) {
    throw NotKnown();
  }
  replace_arguments(op, returned_arguments(op, *stack), stack);
}

// Composite kernels of other libraries may be anything. What resizes, or checks
// what it writes, does so in the kernel that is not run.
bool may_be_told(const OpInfo& op) {
  const auto& args = op.args();
  const bool any_out = std::any_of(args.begin(), args.end(), [](const ArgInfo& arg) { return arg.out; });
  const bool is_known = op.is_aten() && (!op.writes() || is_structured(op) || only_tensor(op) >= 0 || op.is_foreach());
  return !any_out && (shape_rule(op) || is_known);
}

// Kernels that have nothing to do may, although the schema says that they do not.
bool returns_argument(const OpInfo& op, const c10::Stack& arguments, const c10::Stack& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    const bool is_fresh = op.return_aliases()[i] < 0 && results[i].isTensor() && results[i].toTensor().defined();
    for (const c10::IValue& argument : arguments) {
      if (is_fresh && argument.isTensor() && argument.toTensor().defined() &&
          results[i].toTensor().is_alias_of(argument.toTensor())) {
        return true;
      }
    }
  }
  return false;
}

} // namespace

Told call_cpp_meta_kernel(const OpInfo& op, c10::Stack* stack) {
  if (!may_be_told(op)) {
    return Told::kNothing;
  }
  Told result = Told::kNothing;
  const c10::Stack arguments = *stack;
  const c10::impl::IncludeDispatchKeyGuard mode(kShapesOnly);
  try {
    tell(op, stack);
    if (!returns_argument(op, arguments, *stack)) {
      return Told::kYes;
    }
  } catch (const NotKnown&) {
  } catch (const c10::Error&) {
    // Of others it is not certain that the CPU would raise the same; what was filled, the CPU has filled.
    if (is_structured(op) || only_tensor(op) >= 0) {
      throw;
    }
    result = Told::kRefused;
  }
  *stack = arguments;
  return result;
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&tell_inner>());
}

} // namespace lazyplug
