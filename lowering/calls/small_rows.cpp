#include "lowering/calls/small_rows.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "kernels/pointwise.h"
#include "lowering/calls/plain_tensors.h"
#include "lowering/fusion/function_layout.h"
#include "lowering/fusion/pointwise_ops.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

class SmallRows final : public SmallCalls {
 public:
  static bool can_be(const PointwiseOp* function) {
    if (!function || !kernels::is_about_rows(function->opcode) || kernels::reduces_rows(function->opcode) ||
        function->is_layer_norm() || function->variant) {
      return false;
    }
    const std::string_view args(function->args);
    return args.find_first_not_of("tdfy-") == std::string_view::npos;
  }

  explicit SmallRows(const PointwiseOp& function) : function_(function) {
    const std::string_view args(function.args);
    const auto num_inputs = static_cast<kernels::Slot>(std::count(args.begin(), args.end(), 't'));
    program_.num_memory = program_.num_slots = num_inputs + 1;
    program_.instructions = {{function.opcode, num_inputs, {0, 1, 2}}};
  }

 private:
  at::Tensor compute(Arguments arguments, MemoryOf memory_of) const override {
    FunctionLayout layout(function_);
    c10::SmallVector<const c10::TensorImpl*, 3> tensors;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (function_.args[i] == 't') {
        const auto* tensor = plain_tensor(arguments[i]);
        if (!tensor || tensor->dtype() != at::kFloat || tensor->numel() > kMaxElements || !tensor->is_contiguous() ||
            !layout.add({at::kFloat, tensor->sizes(), tensor->strides(), /*is_dense=*/true})) {
          return {};
        }
        tensors.push_back(tensor);
      } else if (
          function_.args[i] != '-' &&
          !is_expected(arguments[i], function_.args[i], at::kFloat, layout.result().sizes)) {
        return {};
      }
    }
    c10::SmallVector<kernels::Memory, 4> memory;
    for (const auto* tensor : tensors) {
      memory.push_back({memory_of(*tensor, /*written=*/false), at::kFloat});
      if (!memory.back().data) {
        return {};
      }
    }
    const Geometry& like = layout.result();
    at::Tensor result =
        at::detail::empty_strided_cpu(like.sizes, strides_of_result(like.sizes, like.strides), at::kFloat);
    memory.push_back({result.mutable_data_ptr(), at::kFloat});
    run(memory, result.numel(), like.sizes.back());
    return result;
  }

  void run(c10::ArrayRef<kernels::Memory> memory, int64_t num_elements, int64_t row_elements) const {
    const std::array<int64_t, 2> sizes{num_elements / row_elements, row_elements};
    const std::array<int64_t, 2> strides{row_elements, 1};
    const c10::SmallVector<kernels::PointwiseSpace::Input, 3> inputs(
        memory.size() - 1,
        {0, c10::DimVector(strides.begin(), strides.end())});
    kernels::run(program_, kernels::PointwiseSpace(sizes, strides, inputs), memory, /*numbers=*/nullptr);
  }

  const PointwiseOp& function_;
  kernels::Program program_;
};

} // namespace

std::unique_ptr<const SmallCalls> make_small_rows(const OpInfo& op) {
  const PointwiseOp* function = is_function(op) ? find_function(op, {}) : nullptr;
  return SmallRows::can_be(function) ? std::make_unique<SmallRows>(*function) : nullptr;
}

} // namespace lazyplug
