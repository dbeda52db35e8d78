#include "lowering/calls/image_kernels.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Pool.h>
#include <ATen/native/UpSample.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/pool.h"
#include "kernels/upsample.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// Float32, and without gaps in the memory format of the results that PyTorch's kernel would return.
bool is_plain_image(const c10::IValue& argument) {
  if (!argument.isTensor() || !argument.toTensor().defined()) {
    return false;
  }
  const at::Tensor& image = argument.toTensor();
  return image.is_cpu() && image.scalar_type() == at::kFloat && !image.is_neg() && image.numel() > 0 &&
         image.is_contiguous(image.suggest_memory_format());
}

// For both axes there is one number, or one for each; none means that of `missing`.
int64_t number(const c10::IValue& numbers, int64_t axis, const c10::IValue& missing) {
  const auto given = numbers.toListRef();
  return given.empty() ? number(missing, axis, missing) : given[given.size() == 1 ? 0 : axis].toInt();
}

bool is_pair(const c10::IValue& numbers, bool may_miss = false) {
  const size_t count = numbers.isIntList() ? numbers.toListRef().size() : 3;
  return count <= 2 && (count > 0 || may_miss);
}

// Of max_pool2d_with_indices (image, window, stride, padding, dilation, ceil_mode), and of avg_pool2d, which knows of
// no dilation.
struct PoolArguments {
  const at::Tensor& image;
  const c10::IValue& window;
  const c10::IValue& stride;
  const c10::IValue& padding;
  const c10::IValue* step; // null: 1
  bool ceil_mode;
};

// `axis`: 0 of rows, 1 of columns. Nothing if there is no window.
std::optional<kernels::Pool::Axis> plan_axis(const PoolArguments& arguments, int64_t in_size, int64_t axis) {
  const auto of = [&](const c10::IValue& argument) { return number(argument, axis, arguments.window); };
  const int64_t step = arguments.step ? of(*arguments.step) : 1;
  kernels::Pool::Axis result{in_size, 0, of(arguments.window), step, of(arguments.stride), of(arguments.padding)};
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
      arguments.ceil_mode);
  return result;
}

bool is_channels_last(const at::Tensor& image) {
  return image.suggest_memory_format() == at::MemoryFormat::ChannelsLast && image.size(1) > 1;
}

std::optional<kernels::Pool> plan_pool(const PoolArguments& arguments) {
  const at::Tensor& image = arguments.image;
  const bool is_possible = (image.dim() == 3 || image.dim() == 4) && is_pair(arguments.window) &&
                           is_pair(arguments.stride, /*may_miss=*/true) && is_pair(arguments.padding) &&
                           (!arguments.step || is_pair(*arguments.step));
  if (!is_possible) {
    return std::nullopt;
  }
  const auto rows = plan_axis(arguments, image.size(-2), 0);
  const auto columns = plan_axis(arguments, image.size(-1), 1);
  if (!rows || !columns) {
    return std::nullopt;
  }
  const int64_t num_channels = is_channels_last(image) ? image.size(1) : 1;
  const int64_t num_planes = image.numel() / (rows->in_size * columns->in_size * num_channels);
  const kernels::Pool pool{num_planes, *rows, *columns, num_channels};
  return kernels::can_pool(pool) && kernels::is_quicker_here(pool) ? std::optional(pool) : std::nullopt;
}

// Of the image's sizes but for the last two, and its memory format.
at::Tensor empty_image(const at::Tensor& image, int64_t height, int64_t width, at::ScalarType dtype) {
  c10::DimVector sizes(image.sizes());
  sizes[sizes.size() - 2] = height;
  sizes[sizes.size() - 1] = width;
  return at::detail::empty_cpu(sizes, dtype, /*pin_memory=*/false, image.suggest_memory_format());
}

// Nothing is returned, and false, if the call is none for the kernel.
bool find_maxima(Arguments arguments, bool reads_last, c10::SmallVector<at::Tensor, 2>& results) {
  const at::Tensor& input = arguments[0].toTensor();
  const auto pool = plan_pool({input, arguments[1], arguments[2], arguments[3], &arguments[4], arguments[5].toBool()});
  if (!pool) {
    return false;
  }
  const auto make = [&](at::ScalarType dtype) {
    return empty_image(input, pool->rows.out_size, pool->columns.out_size, dtype);
  };
  results.push_back(make(at::kFloat));
  results.push_back(reads_last ? make(at::kLong) : at::Tensor());
  kernels::find_largest(
      *pool,
      input.const_data_ptr<float>(),
      results[0].mutable_data_ptr<float>(),
      reads_last ? results[1].mutable_data_ptr<int64_t>() : nullptr);
  return true;
}

// (image, window, stride, padding, ceil_mode, count_include_pad, divisor_override)
bool find_means(Arguments arguments, bool /*reads_last*/, c10::SmallVector<at::Tensor, 2>& results) {
  const at::Tensor& input = arguments[0].toTensor();
  const auto pool = plan_pool({input, arguments[1], arguments[2], arguments[3], nullptr, arguments[4].toBool()});
  if (!pool || !arguments[6].isNone()) {
    return false;
  }
  results.push_back(empty_image(input, pool->rows.out_size, pool->columns.out_size, at::kFloat));
  kernels::find_mean(*pool, arguments[5].toBool(), input.const_data_ptr<float>(), results[0].mutable_data_ptr<float>());
  return true;
}

// By result: which element of an axis it is.
std::vector<int32_t> sources(int64_t in_size, int64_t out_size, const c10::IValue& scale) {
  std::vector<int32_t> result(out_size);
  for (int64_t i = 0; i < out_size; ++i) {
    result[i] = static_cast<int32_t>(at::native::nearest_idx(i, in_size, out_size, scale.toOptional<double>()));
  }
  return result;
}

bool upsample(Arguments arguments, bool /*reads_last*/, c10::SmallVector<at::Tensor, 2>& results) {
  const at::Tensor& input = arguments[0].toTensor();
  const auto out_sizes = arguments[1].isIntList() ? arguments[1].toDimVector() : c10::DimVector();
  const bool is_possible = input.dim() == 4 && !is_channels_last(input) && out_sizes.size() == 2 && out_sizes[0] > 0 &&
                           out_sizes[1] > 0 &&
                           std::max(input.size(2), input.size(3)) <= std::numeric_limits<int32_t>::max();
  if (!is_possible) {
    return false;
  }
  const kernels::Upsample upsample{
      input.size(0) * input.size(1),
      input.size(2),
      input.size(3),
      sources(input.size(2), out_sizes[0], arguments[2]),
      sources(input.size(3), out_sizes[1], arguments[3])};
  results.push_back(empty_image(input, out_sizes[0], out_sizes[1], at::kFloat));
  kernels::run(upsample, input.const_data_ptr<float>(), results[0].mutable_data_ptr<float>());
  return true;
}

using Run = bool (*)(Arguments, bool, c10::SmallVector<at::Tensor, 2>&);

bool run_if_possible(Run run, const OpInfo& op, c10::Stack& stack, bool reads_last) {
  const Arguments arguments = torch::jit::last(stack, op.num_args());
  c10::SmallVector<at::Tensor, 2> results;
  if (!is_plain_image(arguments[0]) || !run(arguments, reads_last, results)) {
    return false;
  }
  torch::jit::drop(stack, op.num_args());
  std::move(results.begin(), results.end(), std::back_inserter(stack));
  return true;
}

} // namespace

bool run_max_pool(const OpInfo& op, c10::Stack& stack, bool reads_last) {
  return run_if_possible(find_maxima, op, stack, reads_last);
}

bool run_mean_pool(const OpInfo& op, c10::Stack& stack, bool reads_last) {
  return run_if_possible(find_means, op, stack, reads_last);
}

bool run_upsample(const OpInfo& op, c10::Stack& stack, bool reads_last) {
  return run_if_possible(upsample, op, stack, reads_last);
}

} // namespace lazyplug
