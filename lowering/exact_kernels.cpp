#include "lowering/exact_kernels.h"

#include <string_view>
#include <unordered_map>

#include "lowering/batch_norm_kernel.h"
#include "lowering/convolution_kernel.h"
#include "lowering/image_kernels.h"

namespace lazyplug {
namespace {

ExactKernel find(const OpInfo& op) {
  static const auto* known = new std::unordered_map<std::string_view, ExactKernel>{
      {"aten::avg_pool2d", run_mean_pool},
      {"aten::convolution", run_convolution},
      {"aten::convolution_backward", run_convolution_backward},
      {"aten::max_pool2d_with_indices", run_max_pool},
      {"aten::native_batch_norm", run_batch_norm},
      {"aten::upsample_nearest2d", run_upsample},
  };
  const auto found = known->find(op.name());
  return found == known->end() ? nullptr : found->second;
}

} // namespace

bool run_exact_kernel(const OpInfo& op, c10::Stack& stack) {
  const ExactKernel run = find(op);
  return run && run(op, stack, /*reads_last=*/true);
}

std::function<void(c10::Stack&)>
exact_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& /*geometries*/) {
  const ExactKernel run = find(op);
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
