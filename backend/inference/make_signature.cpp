#include "backend/inference/make_signature.h"

#include "backend/ops/float_numbers.h"
#include "lowering/calls/light_calls.h"
#include "lowering/ir/finish_signature.h"

namespace lazyplug {
namespace {

ArgBinding bind_argument(const OpInfo& op, ArgKind kind, const c10::IValue& value) {
  ArgBinding binding;
  switch (kind) {
    case ArgKind::kTensor:
      binding.kind = ArgBinding::Kind::kOperand;
      break;
    case ArgKind::kTensorList:
      if (!value.isNone()) {
        binding.kind = ArgBinding::Kind::kOperandList;
        binding.count = static_cast<uint32_t>(value.toListRef().size());
      }
      break;
    case ArgKind::kScalar:
      if (!value.isNone()) {
        binding.kind = ArgBinding::Kind::kScalar;
        binding.constant = value;
      }
      break;
    case ArgKind::kGenerator:
      if (op.random()) {
        binding.kind = ArgBinding::Kind::kGenerator;
      }
      break;
    case ArgKind::kDevice:
      if (!value.isNone()) {
        binding.constant = c10::Device(c10::kCPU);
      }
      break;
    case ArgKind::kConstant:
      binding.constant = value;
      break;
  }
  return binding;
}

bool add_output(Signature& signature, const at::Tensor& meta, c10::DeviceType device) {
  if (meta.layout() != c10::kStrided || meta.device().type() != device || c10::isQIntType(meta.scalar_type())) {
    return false;
  }
  Geometry layout = Geometry::of(*meta.unsafeGetTensorImpl());
  layout.conj = layout.neg = layout.wrapped_number = false;
  layout.offset = 0;
  signature.outputs.push_back(std::move(layout));
  return true;
}

bool bind_return(Signature& signature, size_t index, const c10::IValue& value, c10::DeviceType device) {
  ReturnBinding binding;
  const int alias = signature.op->return_aliases()[index];
  if (alias >= 0) {
    binding = {ReturnBinding::Kind::kArgument, static_cast<uint32_t>(alias)};
  } else if (value.isTensorList()) {
    const auto tensors = value.toTensorVector();
    binding = {ReturnBinding::Kind::kFreshList, static_cast<uint32_t>(tensors.size())};
    for (const at::Tensor& tensor : tensors) {
      if (!tensor.defined() || !add_output(signature, tensor, device)) {
        return false;
      }
    }
  } else if (!value.isTensor() || !value.toTensor().defined()) {
    binding.kind = ReturnBinding::Kind::kUndefined;
  } else if (!add_output(signature, value.toTensor(), device)) {
    return false;
  }
  signature.returns.push_back(binding);
  return true;
}

bool is_on_cpu(const TensorArg& arg) {
  return arg.tensor && !arg.storage;
}

// Whether the signature tells all that the key was made of.
bool is_predictable(const Call& call) {
  return !call.any_shared_storage;
}

} // namespace

c10::intrusive_ptr<Signature> make_signature(
    const Call& call,
    const c10::Stack& stack,
    const c10::Stack& results,
    c10::DeviceType device,
    bool is_silent) {
  auto signature = c10::make_intrusive<Signature>();
  signature->op = call.op;
  signature->key = call.key;
  signature->identity = call.identity;
  const auto arguments = torch::jit::last(stack, call.op->num_args());
  for (size_t i = 0; i < arguments.size(); ++i) {
    signature->args.push_back(bind_argument(*call.op, call.op->args()[i].kind, arguments[i]));
  }
  const bool any_on_cpu = std::any_of(call.tensors.begin(), call.tensors.end(), is_on_cpu);
  for (const TensorArg& arg : call.tensors) {
    signature->operands.push_back(arg.tensor ? Geometry::of(*arg.tensor) : Geometry());
    if (call.any_written) {
      signature->written.push_back(arg.tensor && arg.written);
    }
    if (any_on_cpu) {
      signature->on_cpu.push_back(is_on_cpu(arg));
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!bind_return(*signature, i, results[i], device)) {
      return nullptr;
    }
  }
  signature->shares_written = call.any_shared_storage;
  signature->kernel_version = call.kernel_version;
  signature->number_ranges = call.ranges.word();
  signature->default_dtype = c10::get_default_dtype_as_scalartype();
  signature->predictable = is_silent && is_predictable(call);
  signature->proven.value = device == c10::kCPU;
  signature->work = light_work(*signature);
  signature->takes_float_numbers = takes_float_numbers(*signature);
  finish_signature(*signature);
  return signature;
}

} // namespace lazyplug
