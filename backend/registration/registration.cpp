#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include "backend/caches/steps.h"
#include "backend/diagnostics/sync_cause.h"
#include "backend/execution/device_context.h"
#include "backend/execution/lazy_storage.h"
#include "backend/native/kernels.h"
#include "backend/native/recurrent.h"
#include "backend/ops/op_registry.h"
#include "backend/ops/op_table.h"
#include "backend/ops/traced_ops.h"
#include "backend/recording/fast_ops.h"
#include "backend/recording/tracer.h"
#include "backend/registration/autocast.h"
#include "backend/registration/collectives.h"
#include "backend/registration/non_strided_ops.h"
#include "backend/registration/op_table.h"
#include "device/callbacks.h"
#include "device/runtime.h"

// Tables only: which op of the device has which kernel.
namespace lazyplug {
namespace {

void register_traced_ops(torch::Library& library) {
  for (const c10::OperatorHandle& op : aten_ops()) {
    if (is_traced(op) && !OpTable::get().fast(op.operator_name())) {
      library.impl(
          c10::toString(op.operator_name()).c_str(),
          torch::CppFunction::makeFromBoxedKernel(
              c10::BoxedKernel::makeFromFunctor(std::make_unique<TracerKernel>(op_info(op)))));
    }
  }
}

// First of all: the blocks below describe ops.
const bool op_table_is_installed = [] {
  OpTable::install(op_rows());
  return true;
}();

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_lazy_storage();
  register_traced_ops(m);
  register_fast_ops(m);
  m.impl("empty.memory_format", native::empty);
  m.impl("empty_strided", native::empty_strided);
  m.impl("_efficientzerotensor", native::efficient_zero_tensor);
  m.impl("as_strided", native::as_strided);
  m.impl("view", native::view);
  m.impl("_reshape_alias", native::reshape_alias);
  m.impl("unfold", native::unfold);
  m.impl("view_as_real", native::view_as_real);
  m.impl("view_as_complex", native::view_as_complex);
  m.impl("resize_", native::resize_);
  m.impl("_resize_output_", native::resize_output_);
  m.impl("set_", native::set_);
  m.impl("set_.source_Tensor", native::set_source_tensor_);
  m.impl("set_.source_Storage", native::set_source_storage_);
  m.impl("set_.source_Storage_storage_offset", native::set_source_storage_offset_);
  m.impl("is_set_to", native::is_set_to);
  m.impl("_has_compatible_shallow_copy_type", native::has_compatible_shallow_copy_type);
  m.impl("record_stream", native::record_stream);
  m.impl("copy_", native::copy_);
  m.impl("_to_copy", native::to_copy);
  m.impl("_copy_from", native::copy_from);
  m.impl("_copy_from_and_resize", native::copy_from_and_resize);
  m.impl("_local_scalar_dense", native::local_scalar_dense);
  m.impl("equal", native::equal);
  m.impl("_linalg_check_errors", native::linalg_check_errors);
  m.impl("convolution", native::convolution);
  m.impl("dot", native::dot);
  m.impl("vdot", native::vdot);
  m.impl("linalg_lu_solve", native::linalg_lu_solve);
  m.impl("linalg_lu_solve.out", native::linalg_lu_solve_out);
  m.impl("_assert_async", native::assert_async);
  m.impl("_assert_async.msg", native::assert_async_msg);
  m.impl("histc", native::histc);
  m.impl("histc.out", native::histc_out);
  m.impl("native_dropout", native::native_dropout);
  m.impl("max_pool1d", native::max_pool1d);
  m.impl("_scaled_dot_product_fused_attention_overrideable", native::fused_attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", native::fused_attention_backward);
  native::register_recurrent_ops(m);
  m.impl("_thnn_fused_lstm_cell", native::fused_lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", native::fused_lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", native::fused_gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", native::fused_gru_cell_backward);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  register_fast_autograd(m);
  native::register_recurrent_ops(m);
  m.impl("contiguous", native::contiguous);
  // What the CPU has no kernel of its own for, a subclass's __torch_dispatch__ does not see.
  m.impl("_has_compatible_shallow_copy_type", native::has_compatible_shallow_copy_type);
  m.impl("max_pool1d", native::max_pool1d);
  m.impl("linear", native::linear);
  m.impl("linear_backward", native::linear_backward);
  m.impl("lstm_cell", native::lstm_cell);
  m.impl("_thnn_fused_lstm_cell", native::differentiable_lstm_cell);
  m.impl("_thnn_fused_gru_cell", native::differentiable_gru_cell);
  m.impl("native_group_norm_backward", torch::CppFunction::makeFromBoxedFunction<&native::group_norm_backward>());
}

// These have kernels for devices of which PyTorch knows no rule of vmap, so that it would go through the samples one by
// one. The CPU has none of them, nor do other devices lose by what they are made of.
void register_batched(torch::Library& m) {
  m.impl("linear_backward", native::batched_linear_backward);
  m.impl("_thnn_fused_lstm_cell", native::batched_lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", native::batched_lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", native::batched_gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", native::batched_gru_cell_backward);
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatchedDecomposition, m) {
  register_batched(m);
}

TORCH_LIBRARY_IMPL(aten, Batched, m) {
  register_batched(m);
}

TORCH_LIBRARY_IMPL(c10d, PrivateUse1, m) {
  register_collectives(m);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&trace_unregistered>());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  register_autocast_ops(m);
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  register_non_strided_ops(m, c10::DispatchKey::SparsePrivateUse1);
}
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  register_non_strided_ops(m, c10::DispatchKey::SparseCsrPrivateUse1);
}
TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  register_non_strided_ops(m, c10::DispatchKey::QuantizedPrivateUse1);
}
TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  register_non_strided_ops(m, c10::DispatchKey::NestedTensorPrivateUse1);
}
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_non_strided>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_non_strided>());
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_non_strided>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_non_strided>());
}

DeviceCallbacks callbacks() {
  DeviceCallbacks callbacks;
  const auto context = [](c10::Stream stream) -> DeviceContext& { return DeviceContext::get(stream.device_index()); };
  callbacks.synchronize = [](c10::DeviceIndex device) {
    const SyncCause cause("synchronize");
    note_step();
    DeviceContext::get(device).synchronize();
  };
  callbacks.synchronize_stream = [context](c10::Stream stream, uint64_t place) {
    const SyncCause cause("synchronize");
    context(stream).synchronize_stream(stream.id(), place);
  };
  callbacks.flush = [context](c10::Stream stream) {
    const SyncCause cause("stream query");
    context(stream).flush_stream(stream.id());
  };
  callbacks.wait_for = [](c10::Stream waiting, c10::Stream stream, uint64_t place) {
    const SyncCause cause("stream wait");
    DeviceContext::wait_for(waiting, stream, place);
  };
  callbacks.recorded_place = [context](c10::Stream stream) { return context(stream).recorded(stream.id()); };
  callbacks.completed_place = [context](c10::Stream stream) { return context(stream).completed(stream.id()); };
  callbacks.empty_cache = [](c10::DeviceIndex device) { DeviceContext::get(device).numbers().clear(); };
  callbacks.resize_storage = [](c10::StorageImpl* storage, size_t nbytes) {
    auto* lazy = LazyStorageImpl::of(*storage);
    TORCH_CHECK(lazy, "cannot resize memory that was wrapped, not allocated");
    DeviceContext::resize(*lazy, nbytes);
  };
  return callbacks;
}

const bool callbacks_are_set = [] {
  set_device_callbacks(callbacks());
  return true;
}();

} // namespace
} // namespace lazyplug

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &lazyplug::native::fused_sdp_choice)
} // namespace at::native
