#include "backend/ops/op_traits.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace lazyplug {
namespace {

struct TraitsRow {
  const char* op; // without overload: all of them, if no row above names one
  OpTraits traits;
  const char* reason;
};

constexpr const char* kOtherShapes = "its Meta kernel promises other shapes than the CPU returns";
constexpr const char* kKeepsShape = "out= keeps its shape if it has as many elements; Meta resizes it";
constexpr const char* kNoMeta = "there is no Meta kernel";
constexpr const char* kQuantized = "returns a quantized tensor";
constexpr const char* kNested = "returns a nested tensor";
constexpr const char* kOtherStrides = "its Meta kernel promises other strides than the CPU returns";

const std::vector<TraitsRow>& traits_table() {
  static const auto* table = new std::vector<TraitsRow>{
      {"aten::arange.start_out", {.scalars_are_constants = true, .infer_on_cpu = true, .is_quick = true}, kKeepsShape},
      {"aten::arange.out", {.scalars_are_constants = true, .infer_on_cpu = true, .is_quick = true}, kKeepsShape},
      {"aten::range.out", {.scalars_are_constants = true, .infer_on_cpu = true, .is_quick = true}, kKeepsShape},
      {"aten::linspace.out", {.infer_on_cpu = true, .is_quick = true}, kKeepsShape},
      {"aten::logspace.out", {.infer_on_cpu = true, .is_quick = true}, kKeepsShape},
      {"aten::arange", {.scalars_are_constants = true}, "the length follows from the scalars"},
      {"aten::range", {.scalars_are_constants = true}, "the length follows from the scalars"},
      {"aten::multi_margin_loss", {.scalars_are_constants = true}, "takes no p but 1 and 2"},
      {"aten::native_batch_norm",
       {.infer_on_cpu = true,
        .is_quick = true,
        .hidden_writes = {"running_mean", "running_var"},
        .hidden_writes_if = "training"},
       "updates the running statistics; in evaluation the CPU returns empty statistics"},
      {"aten::batch_norm_update_stats",
       {.hidden_writes = {"running_mean", "running_var"}},
       "updates the running statistics"},
      {"aten::_native_batch_norm_legit", {.infer_on_cpu = true, .is_quick = true}, kOtherShapes},
      {"aten::_batch_norm_with_update", {.infer_on_cpu = true, .is_quick = true}, kOtherShapes},
      {"aten::_batch_norm_with_update_functional", {.infer_on_cpu = true, .is_quick = true}, kOtherShapes},
      {"aten::mkldnn_rnn_layer", {.infer_on_cpu = true}, "its Meta kernel promises no workspace"},
      {"aten::mkldnn_rnn_layer_backward", {.infer_on_cpu = true}, "its Meta kernel promises no workspace"},
      {"aten::_linalg_svd", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::_linalg_eigh", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::_linalg_solve_ex", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::linalg_eig", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::linalg_eigvals", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::ldexp", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::linear", {.infer_on_cpu = true}, "linear.out gives its argument other strides"},
      {"aten::linalg_qr", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::linalg_lu_factor_ex", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::linalg_lu_solve", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::linalg_ldl_factor_ex", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::linalg_ldl_solve", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::linalg_householder_product", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::ormqr", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::cholesky_inverse", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::triangular_solve", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::_fft_r2c", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::_fft_c2r", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::_fft_c2c", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::max_unpool2d", {.infer_on_cpu = true, .is_quick = true}, kOtherStrides},
      {"aten::_embedding_bag", {.infer_on_cpu = true, .is_quick = true}, kOtherShapes},
      {"aten::_embedding_bag_forward_only", {.infer_on_cpu = true, .is_quick = true}, kOtherShapes},
      {"aten::randperm", {.infer_on_cpu = true}, "Meta does not check that the dtype can hold the numbers"},
      {"aten::normal", {.infer_on_cpu = true, .is_quick = true}, "which out= arguments it resizes is its own affair"},
      {"aten::nonzero_static", {.infer_on_cpu = true}, kOtherStrides},
      {"aten::geqrf", {.infer_on_cpu = true}, kNoMeta},
      {"aten::histogram", {.infer_on_cpu = true}, kNoMeta},
      {"aten::_histogramdd_bin_edges", {.infer_on_cpu = true}, kNoMeta},
      {"aten::_histogramdd_from_bin_cts", {.infer_on_cpu = true}, kNoMeta},
      {"aten::_histogramdd_from_bin_tensors", {.infer_on_cpu = true}, kNoMeta},
      {"aten::multi_margin_loss_backward", {.scalars_are_constants = true, .infer_on_cpu = true}, kNoMeta},
      {"aten::multilabel_margin_loss_backward", {.infer_on_cpu = true}, kNoMeta},
      {"aten::fractional_max_pool3d_backward", {.infer_on_cpu = true}, kNoMeta},
      {"aten::_nested_from_padded", {.not_traceable_because = kNested}, kNested},
      {"aten::_nested_tensor_from_mask", {.not_traceable_because = kNested}, kNested},
      {"aten::_nested_view_from_buffer", {.not_traceable_because = kNested}, kNested},
      {"aten::quantize_per_tensor", {.not_traceable_because = kQuantized}, kQuantized},
      {"aten::quantize_per_tensor_dynamic", {.not_traceable_because = kQuantized}, kQuantized},
      {"aten::quantize_per_channel", {.not_traceable_because = kQuantized}, kQuantized},
      {"aten::_make_per_tensor_quantized_tensor", {.not_traceable_because = kQuantized}, kQuantized},
      {"aten::_make_per_channel_quantized_tensor", {.not_traceable_because = kQuantized}, kQuantized},
      {"aten::index",
       {.shape_may_be_static = true, .cpu_indices = "indices"},
       "dynamic only with a mask; eager devices accept CPU indices"},
      {"aten::index_fill", {.cpu_indices = "index"}, "as in indexing; programs fill through indices made on the CPU"},
      {"aten::index_fill_", {.cpu_indices = "index"}, "as in indexing; programs fill through indices made on the CPU"},
      {"aten::index_put", {.cpu_indices = "indices"}, "eager devices accept CPU indices"},
      {"aten::index_put_", {.cpu_indices = "indices"}, "eager devices accept CPU indices"},
      {"aten::_index_put_impl_", {.cpu_indices = "indices"}, "eager devices accept CPU indices"},
      {"aten::_ctc_loss.Tensor", {.cpu_indices = "targets"}, "eager devices accept targets on the CPU"},
      {"aten::_ctc_loss",
       {.list_inputs = {"input_lengths", "target_lengths"}, .shape_may_be_static = true, .cpu_indices = "targets"},
       "shapes depend on lists, which each batch has its own of; eager devices accept targets on the CPU"},
      {"aten::_ctc_loss_backward.Tensor", {.infer_on_cpu = true}, kNoMeta},
      {"aten::_ctc_loss_backward",
       {.list_inputs = {"input_lengths", "target_lengths"}},
       "each batch has its own lists"},
      {"aten::repeat_interleave.Tensor",
       {.shape_may_be_static = true, .size_argument = "output_size"},
       "dynamic only if the size is not given"},
      {"aten::_unsafe_index",
       {.shape_may_be_static = true, .cpu_indices = "indices"},
       "dynamic only with a mask; eager devices accept CPU indices"},
  };
  return *table;
}

// Namespaces of ops that PyTorch brings along.
constexpr std::string_view kOwnNamespaces[] = {
    "aten",
    "lazyplug",
    "prims",
    "quantized",
    "_quantized",
    "quantized_decomposed",
    "mkldnn",
    "onednn",
    "inductor",
    "c10d",
    "_c10d_functional",
};

struct LeftAloneRow {
  const char* op;
  const char* reason;
};

constexpr LeftAloneRow kLeftAlone[] = {
    // They make memory without contents; a node would add nothing.
    {"aten::empty", "native"},
    {"aten::empty_strided", "native"},
    {"aten::empty_like", "composes empty"},
    {"aten::empty_permuted", "composes empty"},
    {"aten::new_empty", "composes empty"},
    {"aten::new_empty_strided", "composes empty_strided"},
    // They cross devices.
    {"aten::copy_", "native"},
    {"aten::_to_copy", "composes empty_strided and copy_"},
    {"aten::_copy_from", "copy_ is native"},
    {"aten::_copy_from_and_resize", "native"},
    {"aten::_local_scalar_dense", "native"},
    {"aten::_pin_memory", "refuses tensors of a device"},
    // They change metadata, not data.
    {"aten::resize_", "native"},
    {"aten::resize_as_", "composes resize_"},
    {"aten::_resize_output_", "native"},
    {"aten::set_", "native"},
    {"aten::as_strided_", "changes metadata only"},
    {"aten::_unsafe_view", "returns a view, though its schema does not say so"},
    {"aten::_conj_physical", "composes conj_physical, which must see the conjugate bit"},
    // They return views of one storage, or clone with the strides and offset of
    // their argument; their kernels are composed of views and copies.
    {"aten::unsafe_split", "composes split"},
    {"aten::unsafe_split_with_sizes", "composes split_with_sizes"},
    {"aten::select_scatter", "composes clone, select and copy_"},
    {"aten::slice_scatter", "composes clone, slice and copy_"},
    {"aten::diagonal_scatter", "composes clone, diagonal and copy_"},
    {"aten::as_strided_scatter", "composes clone, as_strided and copy_"},
    {"aten::_new_zeros_with_same_feature_meta", "composes zeros, as large as the other's storage, and as_strided"},
    {"aten::_efficientzerotensor", "native"},
    // They may return a conjugate view.
    {"aten::dot", "native"},
    {"aten::vdot", "native"},
    {"aten::linalg_lu_solve", "native"},
    // The CPU's kernel counts no integers.
    {"aten::histc", "native"},
    {"aten::_pack_padded_sequence", "composes views and cat; lengths and batch sizes are on the CPU"},
    {"aten::_pack_padded_sequence_backward", "composes views and copies; batch sizes are on the CPU"},
    // There is no CPU kernel.
    {"aten::_scaled_dot_product_fused_attention_overrideable", "native"},
    {"aten::_scaled_dot_product_fused_attention_overrideable_backward", "native"},
    // CPU kernels draw from the global generator, not from an argument.
    {"aten::native_dropout", "composed, so that it draws from the device's generator"},
};

} // namespace

const OpTraits& traits_of(const c10::OperatorName& name) {
  static const OpTraits none;
  for (const TraitsRow& row : traits_table()) {
    if (name.name == row.op || c10::toString(name) == row.op) {
      return row.traits;
    }
  }
  return none;
}

bool numbers_may_decide_shapes(const c10::OperatorName& name) {
  const auto own = name.getNamespace();
  return !own || std::find(std::begin(kOwnNamespaces), std::end(kOwnNamespaces), *own) == std::end(kOwnNamespaces);
}

bool is_left_alone(const c10::OperatorName& name) {
  static const auto* ops = [] {
    auto* set = new std::unordered_set<std::string>();
    for (const LeftAloneRow& row : kLeftAlone) {
      set->insert(row.op);
    }
    return set;
  }();
  return ops->count(name.name) != 0;
}

} // namespace lazyplug
