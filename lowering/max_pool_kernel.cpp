#include "lowering/max_pool_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Pool.h>

#include <optional>

#include "kernels/max_pool.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// For both axes there is one number, or one for each; none means that of `missing`.
int64_t number(const c10::IValue& numbers, int64_t axis, const c10::IValue& missing) {
  const auto given = numbers.toListRef();
  return given.empty() ? number(missing, axis, missing) : given[given.size() == 1 ? 0 : axis].toInt();
}

bool is_pair(const c10::IValue& numbers, bool may_miss = false) {
  const size_t count = numbers.isIntList() ? numbers.toListRef().size() : 3;
  return count <= 2 && (count > 0 || may_miss);
}

// `axis`: 0 of rows, 1 of columns. Nothing if there is no window.
std::optional<kernels::MaxPool::Axis> plan_axis(Arguments arguments, int64_t in_size, int64_t axis) {
  const auto of = [&](size_t argument) { return number(arguments[argument], axis, arguments[1]); };
  kernels::MaxPool::Axis result{in_size, 0, of(1), of(4), of(2), of(3)};
  const bool is_good = in_size > 0 && result.window > 0 && result.step > 0 && result.stride > 0 &&
                       result.padding >= 0 && result.padding <= result.window / 2;
  if (!is_good) {
    return std::nullopt;
  }
  result.out_size = at::native::pooling_output_shape(
      in_size,
      result.window,
      result.padding,
      result.stride,
      result.step,
      arguments[5].toBool());
  return result;
}

std::optional<kernels::MaxPool> plan(Arguments arguments) {
  const auto& input = arguments[0].toTensor();
  const bool is_possible = input.is_cpu() && input.scalar_type() == at::kFloat && !input.is_neg() &&
                           (input.dim() == 3 || input.dim() == 4) && input.numel() > 0 && input.is_contiguous() &&
                           input.suggest_memory_format() == at::MemoryFormat::Contiguous && is_pair(arguments[1]) &&
                           is_pair(arguments[2], /*may_miss=*/true) && is_pair(arguments[3]) && is_pair(arguments[4]);
  if (!is_possible) {
    return std::nullopt;
  }
  const auto rows = plan_axis(arguments, input.size(-2), 0);
  const auto columns = plan_axis(arguments, input.size(-1), 1);
  if (!rows || !columns) {
    return std::nullopt;
  }
  const kernels::MaxPool pool{input.numel() / (rows->in_size * columns->in_size), *rows, *columns};
  return kernels::can_pool(pool) ? std::optional(pool) : std::nullopt;
}

} // namespace

bool run_max_pool(const OpInfo& op, c10::Stack& stack, bool has_places) {
  if (op.name() != "aten::max_pool2d_with_indices") {
    return false;
  }
  const Arguments arguments = torch::jit::last(stack, op.num_args());
  const auto pool = plan(arguments);
  if (!pool) {
    return false;
  }
  const at::Tensor& input = arguments[0].toTensor();
  c10::DimVector sizes(input.sizes());
  sizes[sizes.size() - 2] = pool->rows.out_size;
  sizes[sizes.size() - 1] = pool->columns.out_size;
  at::Tensor values = at::detail::empty_cpu(sizes, at::kFloat);
  at::Tensor places;
  if (has_places) {
    places = at::detail::empty_cpu(sizes, at::kLong);
  }
  kernels::run(
      *pool,
      input.const_data_ptr<float>(),
      values.mutable_data_ptr<float>(),
      has_places ? places.mutable_data_ptr<int64_t>() : nullptr);
  torch::jit::drop(stack, op.num_args());
  stack.emplace_back(std::move(values));
  stack.emplace_back(std::move(places));
  return true;
}

std::function<void(c10::Stack&)>
max_pool_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& /*geometries*/) {
  if (op.name() != "aten::max_pool2d_with_indices") {
    return nullptr;
  }
  return [op = &op, has_places = node.output(1)->hasUses()](c10::Stack& stack) {
    if (!run_max_pool(*op, stack, has_places)) {
      op->call(stack);
    }
  };
}

} // namespace lazyplug
