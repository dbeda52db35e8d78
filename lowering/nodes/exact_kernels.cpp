#include "lowering/nodes/exact_kernels.h"

#include <unordered_map>

#include "lowering/calls/batch_norm_kernel.h"
#include "lowering/calls/convolution_kernel.h"
#include "lowering/calls/distance_kernel.h"
#include "lowering/calls/image_kernels.h"
#include "lowering/calls/indexed_rows.h"
#include "lowering/calls/loss_kernels.h"
#include "lowering/calls/roll_kernel.h"
#include "lowering/calls/row_add_kernels.h"

namespace lazyplug {
namespace {

struct Row {
  ExactKernel run;
  const char* overload = "";
};

ExactKernel exact_kernel_of(const OpInfo& op) {
  const auto name = [](const char* text) { return c10::Symbol::fromQualString(text); };
  static const auto* known = new std::unordered_map<c10::Symbol, Row>{
      {name("aten::_embedding_bag"), {run_embedding_bag}},
      {name("aten::_embedding_bag_backward"), {run_embedding_bag_gradient}},
      {name("aten::_embedding_bag_forward_only"), {run_embedding_bag_only}},
      {name("aten::_euclidean_dist"), {run_euclidean_dist}},
      {name("aten::_index_put_impl_"), {run_index_put_sum}},
      {name("aten::avg_pool2d"), {run_mean_pool}},
      {name("aten::convolution"), {run_convolution}},
      {name("aten::convolution_backward"), {run_convolution_backward}},
      {name("aten::embedding"), {run_embedding}},
      {name("aten::embedding_dense_backward"), {run_embedding_gradient}},
      {name("aten::huber_loss"), {run_smooth_loss}},
      {name("aten::huber_loss_backward"), {run_smooth_loss_gradient}},
      {name("aten::index"), {run_take_rows, "Tensor"}},
      {name("aten::index_add"), {run_index_add}},
      {name("aten::index_add_"), {run_index_add_in_place}},
      {name("aten::index_put_"), {run_put_rows}},
      {name("aten::index_select"), {run_index_select}},
      {name("aten::max_pool2d_with_indices"), {run_max_pool}},
      {name("aten::mse_loss"), {run_mse_loss}},
      {name("aten::mse_loss_backward"), {run_mse_loss_gradient}},
      {name("aten::native_batch_norm"), {run_batch_norm}},
      {name("aten::nll_loss_backward"), {run_nll_loss_gradient}},
      {name("aten::nll_loss_forward"), {run_nll_loss}},
      {name("aten::roll"), {run_roll}},
      {name("aten::smooth_l1_loss"), {run_smooth_loss}},
      {name("aten::smooth_l1_loss_backward"), {run_smooth_loss_gradient}},
      {name("aten::upsample_nearest2d"), {run_upsample}},
  };
  const auto found = known->find(op.symbol());
  return found == known->end() || op.overload() != found->second.overload ? nullptr : found->second.run;
}

} // namespace

bool has_exact_kernel(const OpInfo& op) {
  return exact_kernel_of(op) != nullptr;
}

bool run_exact_kernel(const OpInfo& op, c10::Stack& stack) {
  const ExactKernel run = exact_kernel_of(op);
  return run && run(op, stack, /*reads_last=*/true);
}

std::function<void(c10::Stack&)>
exact_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& /*geometries*/) {
  const ExactKernel run = exact_kernel_of(op);
  if (!run) {
    return nullptr;
  }
  return [run, op = &op, reads_last = node.outputs().back()->hasUses()](c10::Stack& stack) {
    if (!run(*op, stack, reads_last)) {
      op->call(stack);
    }
  };
}

} // namespace lazyplug
