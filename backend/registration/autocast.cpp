#include "backend/registration/autocast.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <unordered_map>

#include "backend/ops/op_registry.h"
#include "device/runtime.h"

namespace lazyplug {
namespace {

// The dtype to which an op's floating-point arguments are cast.
enum class Policy : uint8_t {
  kFast,    // that of the autocast region
  kFloat,   // float32
  kPromote, // the widest among the arguments
};

// PyTorch keeps no list of policies, only kernels. So this lists the ops, in
// all overloads, that have another policy than most of those with a kernel.
const std::unordered_map<std::string, Policy>& policies() {
  static const auto* table = new std::unordered_map<std::string, Policy>{
      {"aten::conv1d", Policy::kFast},
      {"aten::conv2d", Policy::kFast},
      {"aten::conv3d", Policy::kFast},
      {"aten::_convolution", Policy::kFast},
      {"aten::conv_tbc", Policy::kFast},
      {"aten::conv_transpose1d", Policy::kFast},
      {"aten::conv_transpose2d", Policy::kFast},
      {"aten::conv_transpose3d", Policy::kFast},
      {"aten::mm", Policy::kFast},
      {"aten::bmm", Policy::kFast},
      {"aten::matmul", Policy::kFast},
      {"aten::linear", Policy::kFast},
      {"aten::addmm", Policy::kFast},
      {"aten::_addmm_activation", Policy::kFast},
      {"aten::addbmm", Policy::kFast},
      {"aten::baddbmm", Policy::kFast},
      {"aten::linalg_vecdot", Policy::kFast},
      {"aten::prelu", Policy::kFast},
      {"aten::mkldnn_rnn_layer", Policy::kFast},
      {"aten::scaled_dot_product_attention", Policy::kFast},
      {"aten::_native_multi_head_attention", Policy::kFast},
      {"aten::cat", Policy::kPromote},
      {"aten::stack", Policy::kPromote},
      {"aten::index_copy", Policy::kPromote},
  };
  return *table;
}

Policy policy_of(const c10::OperatorHandle& op) {
  const auto found = policies().find(op.operator_name().name);
  return found == policies().end() ? Policy::kFloat : found->second;
}

at::ScalarType promote(at::ScalarType dtype, const c10::IValue& argument) {
  if (argument.isTensor()) {
    return at::autocast::prioritize(dtype, argument.toTensor(), kLazyDevice);
  }
  if (argument.isTensorList()) {
    return at::autocast::prioritize(dtype, at::TensorList(argument.toTensorVector()), kLazyDevice);
  }
  return dtype;
}

at::ScalarType target_dtype(Policy policy, c10::ArrayRef<c10::IValue> arguments) {
  if (policy == Policy::kFloat) {
    return at::kFloat;
  }
  at::ScalarType dtype = at::autocast::get_autocast_dtype(kLazyDevice);
  for (size_t i = 0; policy == Policy::kPromote && i < arguments.size(); ++i) {
    dtype = promote(dtype, arguments[i]);
  }
  return dtype;
}

void cast(c10::IValue& argument, at::ScalarType dtype) {
  if (argument.isTensor()) {
    argument = at::autocast::cached_cast(dtype, argument.toTensor(), kLazyDevice);
  } else if (argument.isTensorList()) {
    argument = at::autocast::cached_cast(dtype, at::TensorList(argument.toTensorVector()), kLazyDevice);
  }
}

class AutocastKernel final : public c10::OperatorKernel {
 public:
  explicit AutocastKernel(Policy policy) : policy_(policy) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
    const size_t num_arguments = op.schema().arguments().size();
    const at::ScalarType dtype = target_dtype(policy_, torch::jit::last(*stack, num_arguments));
    for (size_t i = stack->size() - num_arguments; i < stack->size(); ++i) {
      cast((*stack)[i], dtype);
    }
    op.callBoxed(stack);
  }

 private:
  const Policy policy_;
};

const c10::DispatchKeySet kBelowAutocast(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::AutocastPrivateUse1);

// On the CPU, oneDNN runs a whole layer, whose policy is then what counts; but layers with projections fall apart into
// ops.
class LstmKernel final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
    const auto state = torch::jit::peek(*stack, 1, op.schema().arguments().size()).toTensorVector();
    if (state.size() == 2 && state[0].sizes() == state[1].sizes()) {
      whole_layer_(op, keys, stack);
    } else {
      op.redispatchBoxed(keys & kBelowAutocast, stack);
    }
  }

 private:
  AutocastKernel whole_layer_{Policy::kFast};
};

} // namespace

void register_autocast_ops(torch::Library& library) {
  library.impl("lstm.input", torch::CppFunction::makeFromBoxedFunctor(std::make_unique<LstmKernel>()));
  for (const c10::OperatorHandle& op : aten_ops()) {
    if (op.hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU)) {
      library.impl(
          c10::toString(op.operator_name()).c_str(),
          torch::CppFunction::makeFromBoxedKernel(
              c10::BoxedKernel::makeFromFunctor(std::make_unique<AutocastKernel>(policy_of(op)))));
    }
  }
}

} // namespace lazyplug
