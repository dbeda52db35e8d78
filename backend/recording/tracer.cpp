#include "backend/recording/tracer.h"

#include <algorithm>

#include "backend/caches/compile_storms.h"
#include "backend/caches/short_steps.h"
#include "backend/caches/signature_cache.h"
#include "backend/caches/varying_sizes.h"
#include "backend/diagnostics/python_hooks.h"
#include "backend/execution/resize.h"
#include "backend/inference/dtype_trials.h"
#include "backend/inference/read_call.h"
#include "backend/inference/recall.h"
#include "backend/ops/op_registry.h"
#include "backend/ops/results.h"
#include "backend/recording/fallback.h"
#include "backend/recording/force_fallback.h"
#include "common/config.h"
#include "common/metrics.h"
#include "device/generator.h"
#include "device/runtime.h"
#include "lowering/fusion/pointwise_ops.h"

namespace lazyplug {
namespace {

void move_elements(c10::IValue& tensors, c10::DeviceType from, c10::Device to) {
  c10::impl::GenericList moved(tensors.toList().elementType());
  for (const c10::IValue& element : tensors.toListRef()) {
    const bool is_there =
        element.isTensor() && element.toTensor().defined() && element.toTensor().device().type() == from;
    moved.push_back(is_there ? c10::IValue(element.toTensor().to(to)) : element);
  }
  tensors = std::move(moved);
}

// Index tensors may be on the CPU where the op allows it; they are few, and
// copied to the device.
void move_cpu_indices(const OpInfo& op, c10::Stack* stack, c10::Device device) {
  auto& argument = torch::jit::peek(*stack, op.cpu_indices(), op.num_args());
  if (argument.isTensor()) {
    const at::Tensor index = argument.toTensor();
    argument = index.defined() && index.is_cpu() ? index.to(device) : index;
  } else if (argument.isList()) {
    move_elements(argument, c10::kCPU, device);
  }
}

// A tensor on the CPU and indices on the device: it can be written, as with eager
// devices, but not be read. Returns whether the call was made.
bool index_cpu_tensor(const OpInfo& op, c10::Stack* stack) {
  const at::Tensor& indexed = torch::jit::peek(*stack, 0, op.num_args()).toTensor();
  auto& indices = torch::jit::peek(*stack, op.cpu_indices(), op.num_args());
  if (!indexed.defined() || !indexed.is_cpu() || !indices.isList()) {
    return false;
  }
  const auto values = op.handle().schema().argumentIndexWithName("values");
  TORCH_CHECK(
      values,
      "indices should be either on cpu or on the same device as the indexed tensor (",
      indexed.device(),
      ")");
  auto& value = torch::jit::peek(*stack, *values, op.num_args());
  if (value.toTensor().dim() == 0) {
    value = value.toTensor().cpu();
  }
  if (is_lazy(value.toTensor())) {
    return false;
  }
  move_elements(indices, kLazyDevice, c10::kCPU);
  op.handle().callBoxed(*stack);
  return true;
}

// Whether indices are on the CPU, or index a tensor that is.
bool is_indexed_elsewhere(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments) {
  const auto is_there = [](const c10::IValue& value) {
    return value.isTensor() && value.toTensor().defined() && value.toTensor().is_cpu();
  };
  if (op.cpu_indices() < 0) {
    return false;
  }
  const c10::IValue& indices = arguments[op.cpu_indices()];
  const auto elements = indices.isList() ? indices.toListRef() : c10::ArrayRef<c10::IValue>(indices);
  return is_there(arguments[0]) || std::any_of(elements.begin(), elements.end(), is_there);
}

std::optional<c10::Device> lazy_device(const OpInfo& op, const c10::Stack& stack) {
  for (const c10::IValue& value : torch::jit::last(stack, op.num_args())) {
    if (value.isTensor() && is_lazy(value.toTensor())) {
      return value.toTensor().device();
    }
  }
  return std::nullopt;
}

// What read_call() checks of ops that are recorded. Ops that are not recorded for
// other reasons than their data may be made for arguments on several devices.
void check_devices(const OpInfo& op, const c10::Stack& stack) {
  const auto device = lazy_device(op, stack);
  const auto arguments = torch::jit::last(stack, op.num_args());
  for (size_t i = 0; device && i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    if (!value.isTensor() || !value.toTensor().defined() || value.toTensor().device() == *device) {
      continue;
    }
    const bool may_be_read =
        !op.depends_on_data() || value.toTensor().dim() == 0 || static_cast<int>(i) == op.cpu_indices();
    if (op.args()[i].written || !may_be_read) {
      raise_two_devices(*device, value.toTensor().device());
    }
  }
}

void draw_seed(Call& call) {
  if (call.seed_scalar >= 0) {
    const auto device = static_cast<c10::DeviceIndex>(call.device);
    call.scalars[call.seed_scalar] = static_cast<int64_t>(next_seed(call.generator, device));
  }
}

Outputs record(Call& call, const SignaturePtr& signature) {
  draw_seed(call);
  auto& context = DeviceContext::get(static_cast<c10::DeviceIndex>(call.device));
  return context.record(signature, call.tensors, call.scalars);
}

c10::IValue take_list(Outputs& fresh, size_t& next, uint32_t count) {
  c10::List<at::Tensor> list;
  for (uint32_t i = 0; i < count; ++i) {
    list.push_back(std::move(fresh[next++]));
  }
  return list;
}

// Calls `visit` with each tensor that a _foreach_ op writes, unless somebody above the device has seen to it.
template <typename Visit>
void visit_written(const OpInfo& op, const c10::Stack& stack, const Visit& visit) {
  const bool is_seen_to = c10::impl::tls_local_dispatch_key_set().excluded_.has(c10::DispatchKey::ADInplaceOrView);
  for (size_t i = 0; i < op.num_args() && op.writes() && !is_seen_to; ++i) {
    if (op.args()[i].written) {
      for (const c10::IValue& tensor : torch::jit::peek(stack, i, op.num_args()).toListRef()) {
        visit(tensor.toTensor());
      }
    }
  }
}

// Nobody above the device counts the writes of a _foreach_ op, since those that its composite kernel makes are counted.
void count_writes(const OpInfo& op, const c10::Stack& stack) {
  visit_written(op, stack, [](const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); });
}

// Likewise, nobody refuses these. The error is that of a write that cannot be counted.
void refuse_inference_tensors(const OpInfo& op, const c10::Stack& stack) {
  visit_written(op, stack, [](const at::Tensor& tensor) {
    if (tensor.is_inference()) {
      tensor.unsafeGetTensorImpl()->bump_version();
    }
  });
}

// Replaces the arguments on the stack by the results.
void push_results(const OpInfo& op, const Signature& signature, Outputs fresh, c10::Stack* stack) {
  if (op.is_foreach()) {
    count_writes(op, *stack);
  }
  Results results;
  size_t next = 0;
  for (const ReturnBinding& binding : signature.returns) {
    switch (binding.kind) {
      case ReturnBinding::Kind::kFresh:
        results.emplace_back(std::move(fresh[next++]));
        break;
      case ReturnBinding::Kind::kFreshList:
        results.push_back(take_list(fresh, next, binding.index));
        break;
      case ReturnBinding::Kind::kArgument:
        results.push_back(torch::jit::peek(*stack, binding.index, op.num_args()));
        break;
      case ReturnBinding::Kind::kUndefined:
        results.emplace_back(at::Tensor());
        break;
    }
  }
  replace_arguments(op, std::move(results), stack);
}

void resize_arguments(const Call& call, const std::vector<Geometry>& geometries) {
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (call.tensors[i].tensor && call.tensors[i].written) {
      resize_to(const_cast<c10::TensorImpl&>(*call.tensors[i].tensor), geometries[i]);
    }
  }
}

bool is_defined_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

// Undefined if there is none.
at::Tensor first_tensor(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    const auto tensors = value.isTensorList() ? value.toListRef() : c10::ArrayRef<c10::IValue>(value);
    const auto first = std::find_if(tensors.begin(), tensors.end(), is_defined_tensor);
    if (first != tensors.end()) {
      return first->toTensor();
    }
  }
  return {};
}

bool record_as_predicted(const OpInfo& op, c10::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.num_args());
  const auto read = [&](PredictedCall& call) {
    return std::all_of(arguments.begin(), arguments.end(), [&](const c10::IValue& value) { return call.add(value); });
  };
  auto predicted = predict(op, first_tensor(arguments), read);
  if (predicted) {
    push_results(op, *predicted->signature, std::move(predicted->outputs), stack);
  }
  return predicted.has_value();
}

// The op would resize out= arguments: they are resized, and the call looked up
// anew.
void resize_and_infer(Call& call, Inference& inference, const c10::Stack& stack) {
  show_warnings(inference.warnings);
  resize_arguments(call, inference.resized);
  call = read_call(*call.op, stack);
  inference = infer(call, stack);
  inference.warnings.clear(); // the same again
}

// A kernel may give other strides to an out= argument that has its sizes
// already. That matters to nobody if there is nothing to compute.
bool is_done(const OpInfo& op, const std::vector<Geometry>& resized, const Call& call) {
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (call.tensors[i].tensor && call.tensors[i].written && resized[i].numel() != 0) {
      return false;
    }
  }
  return op.returns_only_arguments();
}

bool may_be_predicted(const OpInfo& op) {
  return !runs_steps_at_once() && !are_sizes_new() && !is_storming() && !is_fallback_forced(op);
}

void run_composite(const OpInfo& op, c10::Stack* stack) {
  op.handle().callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
}

std::vector<c10::Warning> run_quietly(const OpInfo& op, c10::Stack* stack, const char* reason) {
  WarningCollector warnings;
  run_at_once(op, stack, reason);
  return warnings.take();
}

void run_and_learn(const Call& call, c10::Stack* stack, const char* reason) {
  const auto arguments = torch::jit::last(*stack, call.op->num_args()).vec();
  const auto warnings = run_quietly(*call.op, stack, reason);
  show_warnings(warnings);
  const auto signature = signature_of(call, arguments, torch::jit::last(*stack, call.op->num_returns()).vec());
  if (signature && warnings.empty()) {
    remember(call.key, signature);
  }
}

void record_or_run(Call& call, const Inference& inference, c10::Stack* stack) {
  const OpInfo& op = *call.op;
  // A function is computed for all tensors of a list, or for none: taken apart, it would be for some.
  if (op.is_foreach() && (inference.run_now ? !is_function(op) : !inference.signature)) {
    return run_composite(op, stack);
  }
  if (inference.run_now && inference.learn) {
    return run_and_learn(call, stack, inference.run_now);
  }
  if (inference.run_now) {
    run_at_once(op, stack, inference.run_now);
    if (inference.trial != Hash128{}) {
      accept_dtypes(call, inference.trial);
    }
    if (inference.signature && inference.warnings.empty()) {
      remember(call.key, inference.signature);
    }
    return;
  }
  if (!inference.signature) {
    if (inference.error && config().fallback.get() == "error") {
      rethrow(inference.error);
    }
    return run_fallback(op, stack, "its Meta kernel cannot predict the result");
  }
  show_warnings(inference.warnings);
  push_results(op, *inference.signature, record(call, inference.signature), stack);
}

} // namespace

std::optional<DeviceContext::Predicted>
predict(const OpInfo& op, const at::Tensor& example, c10::function_ref<bool(PredictedCall&)> read) {
  auto* storage = example.defined() ? LazyStorageImpl::of(example) : nullptr;
  return storage && may_be_predicted(op) ? storage->context().record_predicted(op, read) : std::nullopt;
}

std::optional<DeviceContext::Predicted>
predict(const OpInfo& op, c10::DeviceIndex device, c10::function_ref<bool(PredictedCall&)> read) {
  return may_be_predicted(op) ? DeviceContext::get(device).record_predicted(op, read) : std::nullopt;
}

std::optional<Known> record_known(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments) {
  if (is_fallback_forced(op) || shape_depends_on_data(op, arguments) || is_indexed_elsewhere(op, arguments)) {
    return std::nullopt;
  }
  const auto plain = may_run_with_program() ? read_plain_call(op, arguments) : std::nullopt;
  if (const char* reason = plain ? runs_with_program(*plain) : nullptr) {
    return Known{{}, plain->device, reason};
  }
  Call call = read_arguments(op, arguments);
  if (call.crosses_devices || call.obstacle || call.asks_for_pinned || call.device < 0) {
    return std::nullopt;
  }
  const auto known = recall(call);
  if (!known || (!known->run_now && !known->signature)) {
    return std::nullopt;
  }
  const auto device = static_cast<c10::DeviceIndex>(call.device);
  if (known->run_now) {
    return Known{{}, device, known->run_now};
  }
  return Known{{known->signature, record(call, known->signature)}, device, nullptr};
}

void trace(const OpInfo& op, c10::Stack* stack) {
  if (op.is_foreach()) {
    refuse_inference_tensors(op, *stack);
  }
  if (!record_as_predicted(op, stack)) {
    trace_unpredicted(op, stack);
  }
}

void trace_unpredicted(const OpInfo& op, c10::Stack* stack) {
  if (!op.traceable()) {
    check_devices(op, *stack);
    return run_fallback(op, stack, op.not_traceable_because().c_str());
  }
  if (is_fallback_forced(op)) {
    if (op.is_foreach()) {
      count_writes(op, *stack);
    }
    return run_fallback(op, stack, kForced);
  }
  if (is_indexed_elsewhere(op, torch::jit::last(*stack, op.num_args()))) {
    if (index_cpu_tensor(op, stack)) {
      return;
    }
    if (const auto device = lazy_device(op, *stack)) {
      move_cpu_indices(op, stack, *device);
    }
  }
  const auto arguments = torch::jit::last(*stack, op.num_args());
  const auto plain = may_run_with_program() ? read_plain_call(op, arguments) : std::nullopt;
  if (const char* reason = plain ? runs_with_program(*plain) : nullptr) {
    return run_at_once(op, stack, reason);
  }
  Call call = read_call(op, *stack);
  if (call.crosses_devices || (op.is_foreach() && (call.obstacle || call.device < 0))) {
    // Such as zeros_like(x, device="cpu"): made of others, which then reach the
    // right device.
    return run_composite(op, stack);
  }
  if (call.obstacle || call.device < 0) {
    return run_fallback(op, stack, call.obstacle ? call.obstacle : "no lazy tensor");
  }
  Inference inference = infer(call, *stack);
  if (!inference.resized.empty()) {
    resize_and_infer(call, inference, *stack);
    if (!inference.resized.empty() && is_done(op, inference.resized, call)) {
      return replace_arguments(op, returned_arguments(op, *stack), stack);
    }
  }
  record_or_run(call, inference, stack);
}

void trace_unregistered(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
  trace(op_info(handle), stack);
}

} // namespace lazyplug
