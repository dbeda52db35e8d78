#include "backend/meta_kernels.h"

#include <ATen/Operators.h>

#include <ATen/ops/_log_softmax_backward_data_meta_dispatch.h>
#include <ATen/ops/_log_softmax_meta_dispatch.h>
#include <ATen/ops/_softmax_backward_data_meta_dispatch.h>
#include <ATen/ops/_softmax_meta_dispatch.h>
#include <ATen/ops/add_meta_dispatch.h>
#include <ATen/ops/addcdiv_meta_dispatch.h>
#include <ATen/ops/addcmul_meta_dispatch.h>
#include <ATen/ops/addmm_meta_dispatch.h>
#include <ATen/ops/amax_meta_dispatch.h>
#include <ATen/ops/argmax_meta_dispatch.h>
#include <ATen/ops/avg_pool2d_backward_meta_dispatch.h>
#include <ATen/ops/avg_pool2d_meta_dispatch.h>
#include <ATen/ops/baddbmm_meta_dispatch.h>
#include <ATen/ops/bmm_meta_dispatch.h>
#include <ATen/ops/cat_meta_dispatch.h>
#include <ATen/ops/clamp_meta_dispatch.h>
#include <ATen/ops/clamp_min_meta_dispatch.h>
#include <ATen/ops/cos_meta_dispatch.h>
#include <ATen/ops/cumsum_meta_dispatch.h>
#include <ATen/ops/div_meta_dispatch.h>
#include <ATen/ops/elu_meta_dispatch.h>
#include <ATen/ops/eq_meta_dispatch.h>
#include <ATen/ops/erf_meta_dispatch.h>
#include <ATen/ops/exp_meta_dispatch.h>
#include <ATen/ops/gather_meta_dispatch.h>
#include <ATen/ops/ge_meta_dispatch.h>
#include <ATen/ops/gelu_backward_meta_dispatch.h>
#include <ATen/ops/gelu_meta_dispatch.h>
#include <ATen/ops/gt_meta_dispatch.h>
#include <ATen/ops/le_meta_dispatch.h>
#include <ATen/ops/leaky_relu_meta_dispatch.h>
#include <ATen/ops/lerp_meta_dispatch.h>
#include <ATen/ops/linalg_vector_norm_meta_dispatch.h>
#include <ATen/ops/log_meta_dispatch.h>
#include <ATen/ops/lt_meta_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_backward_meta_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_meta_dispatch.h>
#include <ATen/ops/maximum_meta_dispatch.h>
#include <ATen/ops/mean_meta_dispatch.h>
#include <ATen/ops/minimum_meta_dispatch.h>
#include <ATen/ops/mm_meta_dispatch.h>
#include <ATen/ops/mse_loss_meta_dispatch.h>
#include <ATen/ops/mul_meta_dispatch.h>
#include <ATen/ops/ne_meta_dispatch.h>
#include <ATen/ops/neg_meta_dispatch.h>
#include <ATen/ops/nll_loss_backward_meta_dispatch.h>
#include <ATen/ops/nll_loss_forward_meta_dispatch.h>
#include <ATen/ops/pow_meta_dispatch.h>
#include <ATen/ops/reciprocal_meta_dispatch.h>
#include <ATen/ops/rsqrt_meta_dispatch.h>
#include <ATen/ops/scatter_add_meta_dispatch.h>
#include <ATen/ops/sigmoid_backward_meta_dispatch.h>
#include <ATen/ops/sigmoid_meta_dispatch.h>
#include <ATen/ops/silu_backward_meta_dispatch.h>
#include <ATen/ops/silu_meta_dispatch.h>
#include <ATen/ops/sin_meta_dispatch.h>
#include <ATen/ops/softplus_meta_dispatch.h>
#include <ATen/ops/sqrt_meta_dispatch.h>
#include <ATen/ops/sub_meta_dispatch.h>
#include <ATen/ops/sum_meta_dispatch.h>
#include <ATen/ops/tanh_backward_meta_dispatch.h>
#include <ATen/ops/tanh_meta_dispatch.h>
#include <ATen/ops/threshold_backward_meta_dispatch.h>
#include <ATen/ops/tril_meta_dispatch.h>
#include <ATen/ops/triu_meta_dispatch.h>

#include <unordered_map>

#include "backend/op_registry.h"

namespace lazyplug {
namespace {

namespace ops = at::_ops;

struct Row {
  const char* name;
  const char* overload;
  c10::KernelFunction kernel;
};

template <typename Op, typename Op::schema* meta>
Row row() {
  // By pointer: with GCC's undefined-behaviour sanitizer, "not null" is no constant expression, as TORCH_FN needs it.
  return {Op::name, Op::overload_name, c10::KernelFunction::makeFromUnboxedRuntimeFunction(meta)};
}

at::Tensor relu(const at::Tensor& self) {
  return at::meta::clamp_min(self, 0);
}

at::Tensor ctc_loss_backward(
    const at::Tensor& /*grad*/,
    const at::Tensor& log_probs,
    const at::Tensor& /*targets*/,
    at::IntArrayRef /*input_lengths*/,
    at::IntArrayRef /*target_lengths*/,
    const at::Tensor& /*neg_log_likelihood*/,
    const at::Tensor& /*log_alpha*/,
    int64_t /*blank*/,
    bool /*zero_infinity*/) {
  return at::empty_like(log_probs, at::MemoryFormat::Contiguous);
}

at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<c10::SymInt> output_size) {
  return at::empty({repeats.numel() == 0 ? 0 : output_size->expect_int()}, repeats.options());
}

std::vector<Row> table() {
  return {
      // Arithmetic.
      row<ops::add_Tensor, &at::meta::add>(),
      row<ops::sub_Tensor, &at::meta::sub>(),
      row<ops::mul_Tensor, &at::meta::mul>(),
      row<ops::div_Tensor, &at::meta::div>(),
      row<ops::add__Tensor, &at::meta::add_>(),
      row<ops::sub__Tensor, &at::meta::sub_>(),
      row<ops::mul__Tensor, &at::meta::mul_>(),
      row<ops::div__Tensor, &at::meta::div_>(),
      row<ops::addcmul, &at::meta::addcmul>(),
      row<ops::addcdiv, &at::meta::addcdiv>(),
      row<ops::addcmul_, &at::meta::addcmul_>(),
      row<ops::addcdiv_, &at::meta::addcdiv_>(),
      row<ops::lerp_Scalar, &at::meta::lerp>(),
      row<ops::lerp__Scalar, &at::meta::lerp_>(),
      row<ops::pow_Tensor_Scalar, &at::meta::pow>(),
      row<ops::pow_Tensor_Tensor, &at::meta::pow>(),
      row<ops::pow_Scalar, &at::meta::pow>(),
      row<ops::neg, &at::meta::neg>(),
      row<ops::sqrt, &at::meta::sqrt>(),
      row<ops::rsqrt, &at::meta::rsqrt>(),
      row<ops::reciprocal, &at::meta::reciprocal>(),
      row<ops::exp, &at::meta::exp>(),
      row<ops::log, &at::meta::log>(),
      row<ops::sin, &at::meta::sin>(),
      row<ops::cos, &at::meta::cos>(),
      row<ops::erf, &at::meta::erf>(),
      row<ops::maximum, &at::meta::maximum>(),
      row<ops::minimum, &at::meta::minimum>(),
      row<ops::clamp, &at::meta::clamp>(),
      row<ops::clamp_min, &at::meta::clamp_min>(),
      // Comparisons.
      row<ops::eq_Tensor, &at::meta::eq>(),
      row<ops::eq_Scalar, &at::meta::eq>(),
      row<ops::ne_Tensor, &at::meta::ne>(),
      row<ops::ne_Scalar, &at::meta::ne>(),
      row<ops::lt_Tensor, &at::meta::lt>(),
      row<ops::lt_Scalar, &at::meta::lt>(),
      row<ops::le_Tensor, &at::meta::le>(),
      row<ops::le_Scalar, &at::meta::le>(),
      row<ops::gt_Tensor, &at::meta::gt>(),
      row<ops::gt_Scalar, &at::meta::gt>(),
      row<ops::ge_Tensor, &at::meta::ge>(),
      row<ops::ge_Scalar, &at::meta::ge>(),
      // Activations and their gradients.
      row<ops::tanh, &at::meta::tanh>(),
      row<ops::sigmoid, &at::meta::sigmoid>(),
      row<ops::silu, &at::meta::silu>(),
      row<ops::gelu, &at::meta::gelu>(),
      row<ops::softplus, &at::meta::softplus>(),
      row<ops::elu, &at::meta::elu>(),
      row<ops::leaky_relu, &at::meta::leaky_relu>(),
      row<ops::tanh_backward, &at::meta::tanh_backward>(),
      row<ops::sigmoid_backward, &at::meta::sigmoid_backward>(),
      row<ops::silu_backward, &at::meta::silu_backward>(),
      row<ops::gelu_backward, &at::meta::gelu_backward>(),
      row<ops::threshold_backward, &at::meta::threshold_backward>(),
      row<ops::_softmax, &at::meta::_softmax>(),
      row<ops::_softmax_backward_data, &at::meta::_softmax_backward_data>(),
      row<ops::_log_softmax, &at::meta::_log_softmax>(),
      row<ops::_log_softmax_backward_data, &at::meta::_log_softmax_backward_data>(),
      // Products, reductions and losses.
      row<ops::mm, &at::meta::mm>(),
      row<ops::bmm, &at::meta::bmm>(),
      row<ops::addmm, &at::meta::addmm>(),
      row<ops::baddbmm, &at::meta::baddbmm>(),
      row<ops::sum_dim_IntList, &at::meta::sum>(),
      row<ops::mean_dim, &at::meta::mean>(),
      row<ops::amax, &at::meta::amax>(),
      row<ops::argmax, &at::meta::argmax>(),
      row<ops::cumsum, &at::meta::cumsum>(),
      row<ops::linalg_vector_norm, &at::meta::linalg_vector_norm>(),
      row<ops::mse_loss, &at::meta::mse_loss>(),
      row<ops::nll_loss_forward, &at::meta::nll_loss_forward_symint>(),
      row<ops::nll_loss_backward, &at::meta::nll_loss_backward_symint>(),
      // Pooling and indexing.
      row<ops::avg_pool2d, &at::meta::avg_pool2d>(),
      row<ops::avg_pool2d_backward, &at::meta::avg_pool2d_backward>(),
      row<ops::max_pool2d_with_indices, &at::meta::max_pool2d_with_indices>(),
      row<ops::max_pool2d_with_indices_backward, &at::meta::max_pool2d_with_indices_backward>(),
      row<ops::cat, &at::meta::cat>(),
      row<ops::gather, &at::meta::gather>(),
      row<ops::scatter_add, &at::meta::scatter_add>(),
      row<ops::tril, &at::meta::tril_symint>(),
      row<ops::triu, &at::meta::triu_symint>(),
      // Has none of its own.
      row<ops::_ctc_loss_backward, &ctc_loss_backward>(),
      row<ops::repeat_interleave_Tensor, &repeat_interleave>(),
      // Not a structured kernel; on the CPU it is composed in this way.
      row<ops::relu, &relu>(),
  };
}

} // namespace

const c10::KernelFunction* cpp_meta_kernel(const OpInfo& op) {
  static const auto* kernels = [] {
    auto* map = new std::unordered_map<const OpInfo*, c10::KernelFunction>();
    for (const Row& row : table()) {
      map->emplace(&op_info(row.name, row.overload), row.kernel);
    }
    return map;
  }();
  const auto found = kernels->find(&op);
  return found == kernels->end() ? nullptr : &found->second;
}

} // namespace lazyplug
