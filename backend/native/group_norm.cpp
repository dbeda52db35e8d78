#include <ATen/core/stack.h>
#include <ATen/ops/contiguous_native.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <array>
#include <utility>

#include "backend/native/backward_pass.h"
#include "backend/native/kernels.h"

// The derivative of a group norm keeps its operands channels-last on the CPU, and
// makes them contiguous on any other device. It asks no op which device that is, so
// its copies are remembered, and what they were made of is taken instead. They are
// never run, since nobody reads them.
namespace lazyplug::native {
namespace {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

struct Copy {
  explicit Copy(const at::Tensor& copy = {}, const at::Tensor& original = {})
      : copy(copy.getIntrusivePtr()), original(original.getIntrusivePtr()) {}
  WeakTensor copy;
  WeakTensor original;
};

// Those of the gradient and of the input.
thread_local std::array<Copy, 2> last_copies;

bool is_in_derivative() {
  return dynamic_cast<const torch::autograd::generated::NativeGroupNormBackward0*>(current_autograd_node()) != nullptr;
}

void remember(const at::Tensor& copy, const at::Tensor& original) {
  last_copies[0] = std::exchange(last_copies[1], Copy(copy, original));
}

at::Tensor original_of(const at::Tensor& tensor) {
  for (const Copy& last : last_copies) {
    auto original = last.original.lock();
    if (original && last.copy.lock().get() == tensor.unsafeGetTensorImpl()) {
      return at::Tensor(std::move(original));
    }
  }
  return tensor;
}

// The CPU's kernel for channels-last tensors writes this gradient in any case: to a
// null pointer, if nobody has asked for it. Says whether nobody had.
bool ask_for_gradient_of_input(c10::IValue& output_mask) {
  auto mask = output_mask.toBoolList().copy();
  const bool is_new = !mask.get(0);
  mask.set(0, true);
  output_mask = std::move(mask);
  return is_new;
}

} // namespace

at::Tensor contiguous(const at::Tensor& self, at::MemoryFormat format) {
  at::Tensor result = at::native::contiguous(self, format);
  if (!result.is_same(self) && is_in_derivative()) {
    remember(result, self);
  }
  return result;
}

void group_norm_backward(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  const auto argument = [&](const char* name) -> c10::IValue& {
    const auto& schema = op.schema();
    return torch::jit::peek(*stack, *schema.argumentIndexWithName(name), schema.arguments().size());
  };
  const at::Tensor input = original_of(argument("input").toTensor());
  const auto format = input.suggest_memory_format();
  argument("grad_out") = original_of(argument("grad_out").toTensor()).contiguous(format);
  argument("input") = input.contiguous(format);
  const bool is_unwanted = format != at::MemoryFormat::Contiguous && ask_for_gradient_of_input(argument("output_mask"));
  // PyTorch's own autograd kernel stands at the other autograd keys.
  op.getComputedKernelForDispatchKey(c10::DispatchKey::AutogradOther).callBoxed(op, keys, stack);
  if (is_unwanted) {
    torch::jit::peek(*stack, 0, op.schema().returns().size()) = at::Tensor();
  }
}

} // namespace lazyplug::native
