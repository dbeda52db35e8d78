#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/Stream.h>
#include <c10/core/SymIntArrayRef.h>

#include <optional>
#include <string_view>
#include <tuple>

// Ops written natively for the device, because the tracer cannot record them:
// they make or change metadata, or cross devices. One file per group;
// backend/registration/registration.cpp registers them.
namespace lazyplug::native {

// ---- factories.cpp ----
at::Tensor empty(
    c10::SymIntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory,
    std::optional<at::MemoryFormat> memory_format);
at::Tensor empty_strided(
    c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory);

at::Tensor efficient_zero_tensor(
    c10::SymIntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory);

// ---- convolution.cpp ----
at::Tensor convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups);

// ---- assertions.cpp ----
void assert_async(const at::Tensor& self);
void assert_async_msg(const at::Tensor& self, std::string_view message);

// ---- views.cpp ----
at::Tensor as_strided(
    const at::Tensor& self,
    c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride,
    std::optional<c10::SymInt> storage_offset);
at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size);
at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride);
at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step);
at::Tensor view_as_real(const at::Tensor& self);
at::Tensor view_as_complex(const at::Tensor& self);

// ---- metadata.cpp ----
const at::Tensor&
resize_(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> memory_format);
const at::Tensor& resize_output_(const at::Tensor& self, c10::SymIntArrayRef size, at::Device device);
at::Tensor& set_(at::Tensor& self);
at::Tensor& set_source_tensor_(at::Tensor& self, const at::Tensor& source);
at::Tensor& set_source_storage_(at::Tensor& self, at::Storage source);
at::Tensor& set_source_storage_offset_(
    at::Tensor& self,
    at::Storage source,
    c10::SymInt storage_offset,
    c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride);
bool is_set_to(const at::Tensor& self, const at::Tensor& other);
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from);
// Nothing to do: whatever is recorded holds on to the memory that it reads.
void record_stream(at::Tensor& self, c10::Stream stream);

// ---- copies.cpp ----
at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking);
// Past the dispatcher, where the copy is laid out as the tensor.
at::Tensor to_copy(
    const at::Tensor& self,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory,
    bool non_blocking,
    std::optional<at::MemoryFormat> memory_format);
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking);
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst);
at::Scalar local_scalar_dense(const at::Tensor& self);
bool equal(const at::Tensor& self, const at::Tensor& other);
// Raises the CPU's error of a decomposition, if the codes that it has returned say that it failed.
void linalg_check_errors(const at::Tensor& info, std::string_view api_name, bool is_matrix);

// ---- products.cpp ----
at::Tensor dot(const at::Tensor& self, const at::Tensor& other);
at::Tensor vdot(const at::Tensor& self, const at::Tensor& other);

// ---- linear.cpp ----
// Both in place of autograd's kernels.
at::Tensor linear(
    c10::DispatchKeySet keys,
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias);
std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_backward(
    c10::DispatchKeySet keys,
    const at::Tensor& self,
    const at::Tensor& grad_output,
    const at::Tensor& weight,
    std::array<bool, 3> output_mask);
std::tuple<at::Tensor, at::Tensor, at::Tensor> batched_linear_backward(
    const at::Tensor& self,
    const at::Tensor& grad_output,
    const at::Tensor& weight,
    std::array<bool, 3> output_mask);

// ---- lu_solve.cpp ----
at::Tensor
linalg_lu_solve(const at::Tensor& lu, const at::Tensor& pivots, const at::Tensor& b, bool left, bool adjoint);
at::Tensor& linalg_lu_solve_out(
    const at::Tensor& lu,
    const at::Tensor& pivots,
    const at::Tensor& b,
    bool left,
    bool adjoint,
    at::Tensor& out);

// ---- group_norm.cpp ----
at::Tensor contiguous(const at::Tensor& self, at::MemoryFormat format);
// In front of PyTorch's autograd kernel. Gives the gradient the format of the input.
void group_norm_backward(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack);

// ---- histc.cpp ----
at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max);
at::Tensor&
histc_out(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max, at::Tensor& out);

// ---- dropout.cpp ----
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train);

// ---- pooling.cpp ----
at::Tensor max_pool1d(
    const at::Tensor& self,
    c10::IntArrayRef kernel_size,
    c10::IntArrayRef stride,
    c10::IntArrayRef padding,
    c10::IntArrayRef dilation,
    bool ceil_mode);

// ---- attention.cpp ----
int64_t fused_sdp_choice(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa);
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor, at::Tensor>
fused_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_bias,
    double dropout_p,
    bool is_causal,
    bool return_debug_mask,
    std::optional<double> scale);
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> fused_attention_backward(
    const at::Tensor& grad_out,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& attn_bias,
    std::array<bool, 4> grad_input_mask,
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    const at::Tensor& cum_seq_q,
    const at::Tensor& cum_seq_k,
    c10::SymInt max_q,
    c10::SymInt max_k,
    double dropout_p,
    bool is_causal,
    const at::Tensor& kept,
    const at::Tensor& philox_offset,
    std::optional<double> scale);

// ---- lstm.cpp ----
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(
    const at::Tensor& input,
    at::TensorList hx,
    at::TensorList params,
    bool has_biases,
    int64_t num_layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first);

// ---- rnn_cells.cpp ----
std::tuple<at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input,
    at::TensorList hx,
    const at::Tensor& w_ih,
    const at::Tensor& w_hh,
    const std::optional<at::Tensor>& b_ih,
    const std::optional<at::Tensor>& b_hh);
std::tuple<at::Tensor, at::Tensor, at::Tensor> fused_lstm_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias);
std::tuple<at::Tensor, at::Tensor, at::Tensor> fused_lstm_cell_backward(
    const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace,
    bool has_bias);
std::tuple<at::Tensor, at::Tensor> fused_gru_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias);
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
fused_gru_cell_backward(const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias);
// Under vmap.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batched_lstm_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias);
std::tuple<at::Tensor, at::Tensor, at::Tensor> batched_lstm_cell_backward(
    const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace,
    bool has_bias);
std::tuple<at::Tensor, at::Tensor> batched_gru_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias);
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
batched_gru_cell_backward(const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias);
// In front of autograd's kernels.
std::tuple<at::Tensor, at::Tensor, at::Tensor> differentiable_lstm_cell(
    c10::DispatchKeySet keys,
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias);
std::tuple<at::Tensor, at::Tensor> differentiable_gru_cell(
    c10::DispatchKeySet keys,
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias);

} // namespace lazyplug::native
