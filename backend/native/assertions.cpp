#include "backend/execution/device_context.h"
#include "backend/native/kernels.h"
#include "backend/ops/op_registry.h"
#include "backend/recording/tracer.h"

// The tracer records results, of which an assertion has none. PyTorch knows the same op with one: the copy of an
// argument, which fails if the assertion does. The stream holds it until it has been computed.
namespace lazyplug::native {

void assert_async_msg(const at::Tensor& self, std::string_view message) {
  // What sizes tell is known at once.
  TORCH_CHECK(self.numel() != 0, "Boolean value of Tensor with no values is ambiguous");
  TORCH_CHECK(self.numel() == 1, "Boolean value of Tensor with more than one value is ambiguous");
  c10::Stack stack{self, std::string(message), self};
  trace(op_info("aten::_functional_assert_async", "msg"), &stack);
  DeviceContext::hold_check(stack.back().toTensor().storage());
}

void assert_async(const at::Tensor& self) {
  assert_async_msg(self, "Expected Tensor with single nonzero value, but got zero");
}

} // namespace lazyplug::native
