#include "backend/registration/non_strided_ops.h"

#include <algorithm>
#include <unordered_set>

#include "backend/ops/op_registry.h"
#include "backend/recording/fallback.h"

namespace lazyplug {
namespace {

using Names = std::unordered_set<std::string>;

struct Kind {
  c10::DispatchKey key;     // of the device
  c10::DispatchKey cpu_key; // the same on the CPU
  const char* reason;
  // Their CPU kernels only touch metadata, or are composed of ops on the parts,
  // wherever those are.
  Names device_agnostic;
  // Composed on the CPU in a way that knows no other device.
  Names composed = {};
};

const std::vector<Kind>& kinds() {
  static const auto* table = new std::vector<Kind>{
      {c10::DispatchKey::SparsePrivateUse1,
       c10::DispatchKey::SparseCPU,
       "a sparse tensor",
       {"aten::_sparse_coo_tensor_with_dims",
        "aten::_sparse_coo_tensor_with_dims_and_tensors",
        "aten::_indices",
        "aten::_values",
        "aten::indices",
        "aten::values",
        "aten::_nnz",
        "aten::_dimI",
        "aten::_dimV",
        "aten::sparse_dim",
        "aten::dense_dim",
        "aten::is_coalesced",
        "aten::_coalesced_",
        "aten::is_pinned",
        "aten::empty",
        "aten::empty_like",
        "aten::clone",
        "aten::copy_",
        "aten::copy_sparse_to_sparse_",
        "aten::resize_as_sparse_",
        "aten::sparse_resize_",
        "aten::sparse_resize_and_clear_",
        "aten::unsqueeze",
        "aten::permute",
        "aten::zero_"}},
      {c10::DispatchKey::SparseCsrPrivateUse1,
       c10::DispatchKey::SparseCsrCPU,
       "a sparse tensor",
       {"aten::ccol_indices",
        "aten::col_indices",
        "aten::crow_indices",
        "aten::row_indices",
        "aten::values",
        "aten::_nnz",
        "aten::sparse_dim",
        "aten::dense_dim",
        "aten::is_pinned",
        "aten::empty",
        "aten::empty_like",
        "aten::clone",
        "aten::copy_",
        "aten::resize_",
        "aten::resize_as_sparse_",
        "aten::zero_",
        "aten::fill_"}},
      {c10::DispatchKey::QuantizedPrivateUse1,
       c10::DispatchKey::QuantizedCPU,
       "a quantized tensor",
       {"aten::qscheme",
        "aten::q_scale",
        "aten::q_zero_point",
        "aten::q_per_channel_axis",
        "aten::as_strided",
        "aten::_reshape_alias",
        "aten::view",
        "aten::unfold",
        "aten::squeeze",
        "aten::unsqueeze",
        "aten::set_"},
       {"aten::copy_"}},
      {c10::DispatchKey::NestedTensorPrivateUse1,
       c10::DispatchKey::NestedTensorCPU,
       "a nested tensor",
       {"aten::_nested_tensor_size",
        "aten::_nested_tensor_strides",
        "aten::_nested_tensor_storage_offsets",
        "aten::_to_copy",
        "aten::alias",
        "aten::chunk",
        "aten::clone",
        "aten::copy_",
        "aten::detach",
        "aten::empty_like",
        "aten::is_pinned",
        "aten::is_same_size",
        "aten::narrow",
        "aten::select",
        "aten::split_with_sizes",
        "aten::squeeze",
        "aten::transpose",
        "aten::unbind",
        "aten::unsqueeze",
        "aten::values",
        "aten::view"}},
  };
  return *table;
}

class CpuKernel final : public c10::OperatorKernel {
 public:
  CpuKernel(const OpInfo& op, const char* reason) : op_(op), reason_(reason) {}
  void operator()(const c10::OperatorHandle& /*handle*/, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
    run_fallback(op_, stack, reason_);
  }

 private:
  const OpInfo& op_;
  const char* reason_;
};

// That is named, or else of the first tensor.
std::optional<c10::Device> device_of(c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> found;
  for (const c10::IValue& argument : arguments) {
    if (argument.isDevice()) {
      return argument.toDevice();
    }
    if (!found && argument.isTensor() && argument.toTensor().defined()) {
      found = argument.toTensor().device();
    }
  }
  return found;
}

class AgnosticKernel final : public c10::OperatorKernel {
 public:
  explicit AgnosticKernel(c10::DispatchKey key) : key_(key) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
    // What is made of sparse tensors is on the current device, if nobody says otherwise.
    const c10::OptionalDeviceGuard guard(device_of(torch::jit::last(*stack, handle.schema().arguments().size())));
    handle.callBoxedForDispatchKey(key_, *stack);
  }

 private:
  const c10::DispatchKey key_;
};

c10::BoxedKernel kernel_for(const Kind& kind, const c10::OperatorHandle& op) {
  if (kind.device_agnostic.count(op.operator_name().name) != 0) {
    return c10::BoxedKernel::makeFromFunctor(std::make_unique<AgnosticKernel>(kind.cpu_key));
  }
  return c10::BoxedKernel::makeFromFunctor(std::make_unique<CpuKernel>(op_info(op), kind.reason));
}

bool has_kernel_on_cpu(const Kind& kind, const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(kind.cpu_key) || kind.composed.count(op.operator_name().name) != 0;
}

const Kind& kind_of(c10::DispatchKey key) {
  const auto& all = kinds();
  return *std::find_if(all.begin(), all.end(), [&](const Kind& kind) { return kind.key == key; });
}

} // namespace

void register_non_strided_ops(torch::Library& library, c10::DispatchKey key) {
  const Kind& kind = kind_of(key);
  for (const c10::OperatorHandle& op : aten_ops()) {
    if (has_kernel_on_cpu(kind, op)) {
      const std::string name = c10::toString(op.operator_name());
      library.impl(name.c_str(), torch::CppFunction::makeFromBoxedKernel(kernel_for(kind, op)));
    }
  }
}

void run_non_strided(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
  run_fallback(op_info(handle), stack, "a tensor that is not strided");
}

} // namespace lazyplug
