#include <ATen/Functions.h>
#include <ATen/ops/_fused_sdp_choice_native.h>

#include <cmath>
#include <limits>

#include "backend/native/kernels.h"

// scaled_dot_product_attention takes the path that it takes on the CPU. The "overrideable" ops are for who calls them
// by name; they are made of ops that can be recorded.
namespace lazyplug::native {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool is_given(const OptionalTensor& tensor) {
  return tensor && tensor->defined();
}

double scale_of(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
}

// Short floats are computed with as float32.
at::Tensor widened(const at::Tensor& tensor) {
  return tensor.to(tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

// What the softmax is taken of.
at::Tensor
scores_of(const at::Tensor& query, const at::Tensor& key, const OptionalTensor& bias, bool is_causal, double scale) {
  const at::Tensor scores = at::matmul(widened(query) * scale, widened(key).transpose(-2, -1));
  const at::Tensor biased = is_given(bias) ? scores + widened(*bias) : scores;
  if (!is_causal) {
    return biased;
  }
  const auto later = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).triu(1);
  return biased.masked_fill(later, -std::numeric_limits<double>::infinity());
}

} // namespace

// What runs in the end is a CPU kernel, so the CPU's choice is the right one.
int64_t fused_sdp_choice(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  return at::native::_fused_sdp_choice_cpp(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor, at::Tensor>
fused_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_bias,
    double dropout_p,
    bool is_causal,
    bool return_debug_mask,
    std::optional<double> scale) {
  const at::Tensor scores = scores_of(query, key, attn_bias, is_causal, scale_of(query, scale));
  const at::Tensor weights = at::_safe_softmax(scores, -1);
  const at::Tensor none = at::empty({0}, query.options().dtype(at::kLong));
  // The backward pass needs what was dropped, and is given the state of the generator: that is what stands there.
  const at::Tensor kept = dropout_p > 0 ? at::dropout(at::ones_like(weights), dropout_p, /*train=*/true) : none;
  const at::Tensor used = dropout_p > 0 ? weights * kept : weights;
  const at::Tensor output = at::matmul(used, widened(value)).to(query.scalar_type());
  return {
      output,
      at::logsumexp(scores, -1),
      none,
      none,
      query.sym_size(-2),
      key.sym_size(-2),
      kept,
      none,
      return_debug_mask ? used : none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> fused_attention_backward(
    const at::Tensor& grad_out,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& attn_bias,
    std::array<bool, 4> grad_input_mask,
    const at::Tensor& /*out*/,
    const at::Tensor& /*logsumexp*/,
    const at::Tensor& /*cum_seq_q*/,
    const at::Tensor& /*cum_seq_k*/,
    c10::SymInt /*max_q*/,
    c10::SymInt /*max_k*/,
    double dropout_p,
    bool is_causal,
    const at::Tensor& kept,
    const at::Tensor& /*philox_offset*/,
    std::optional<double> scale) {
  if (!grad_out.defined()) {
    return {};
  }
  const double factor = scale_of(query, scale);
  const at::Tensor weights = at::_safe_softmax(scores_of(query, key, attn_bias, is_causal, factor), -1);
  const at::Tensor grad = widened(grad_out);
  const at::Tensor grad_used = at::matmul(grad, widened(value).transpose(-2, -1));
  const at::Tensor used = dropout_p > 0 ? weights * kept : weights;
  const at::Tensor grad_weights = dropout_p > 0 ? grad_used * kept : grad_used;
  const at::Tensor grad_scores = at::_softmax_backward_data(grad_weights, weights, -1, weights.scalar_type());
  const auto wanted = [&](size_t i, const at::Tensor& like, const auto& compute) {
    return grad_input_mask[i] && like.defined() ? compute().to(like.scalar_type()) : at::Tensor();
  };
  return {
      wanted(0, query, [&] { return at::matmul(grad_scores, widened(key)) * factor; }),
      wanted(1, key, [&] { return at::matmul(grad_scores.transpose(-2, -1), widened(query)) * factor; }),
      wanted(2, value, [&] { return at::matmul(used.transpose(-2, -1), grad); }),
      wanted(3, attn_bias, [&] { return grad_scores.sum_to_size(attn_bias.sizes()); })};
}

} // namespace lazyplug::native
