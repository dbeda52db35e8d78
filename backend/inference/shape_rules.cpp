#include "backend/inference/shape_rules.h"

#include <ATen/Functions.h>
#include <ATen/TensorIterator.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/_ctc_loss_native.h>
#include <ATen/ops/addmm_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/roll_native.h>

#include <algorithm>
#include <array>

namespace lazyplug::shape_rules {
namespace {

at::Tensor make(c10::IntArrayRef sizes, const at::Tensor& like, std::optional<at::ScalarType> dtype = std::nullopt) {
  return at::empty(sizes, like.options().dtype(dtype.value_or(like.scalar_type())));
}

at::Tensor contiguous_like(const at::Tensor& tensor) {
  return make(tensor.sizes(), tensor);
}

at::Tensor optional_tensor(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

} // namespace

// ---- Elementwise ----

at::ScalarType first_dtype(Arguments arguments) {
  return arguments[0].toTensor().scalar_type();
}

at::ScalarType real_dtype(Arguments arguments) {
  return c10::toRealValueType(first_dtype(arguments));
}

at::ScalarType floating_dtype(Arguments arguments) {
  const auto dtype = first_dtype(arguments);
  return c10::isIntegralType(dtype, /*includeBool=*/true) ? c10::get_default_dtype_as_scalartype() : dtype;
}

at::ScalarType inexact_dtype(Arguments arguments) {
  TORCH_CHECK(!c10::isIntegralType(first_dtype(arguments), /*includeBool=*/true));
  return first_dtype(arguments);
}

at::ScalarType inexact_real_dtype(Arguments arguments) {
  return c10::toRealValueType(inexact_dtype(arguments));
}

at::ScalarType only_floating_dtype(Arguments arguments) {
  TORCH_CHECK(c10::isFloatingType(first_dtype(arguments)));
  return first_dtype(arguments);
}

at::ScalarType boolean(Arguments /*arguments*/) {
  return at::kBool;
}

at::ScalarType dtype_of_choices(Arguments arguments) {
  return at::result_type(arguments[1].toTensor(), arguments[2].toTensor());
}

at::ScalarType common_dtype(Arguments arguments) {
  return at::result_type(arguments[0].toTensor(), arguments[1].toTensor());
}

at::ScalarType complex_dtype(Arguments arguments) {
  TORCH_CHECK(first_dtype(arguments) == arguments[1].toTensor().scalar_type());
  return c10::toComplexType(first_dtype(arguments));
}

namespace {

at::Tensor looped(Arguments arguments, at::ScalarType dtype) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false);
  config.declare_static_dtype_and_device(dtype, at::kMeta);
  config.add_owned_output(at::Tensor());
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().is_meta()) { // numbers stay on the CPU
      config.add_owned_const_input(value.toTensor());
    }
  }
  const at::Tensor output = config.build().output();
  TORCH_CHECK(output.numel() != 0); // kernels that have nothing to do may not get as far as the loop
  return output;
}

} // namespace

ShapeRule loop(DtypeRule dtype) {
  return [dtype](Arguments arguments) { return c10::Stack{looped(arguments, dtype(arguments))}; };
}

c10::Stack prelu_gradients(Arguments arguments) {
  const std::array operands{arguments[1], arguments[2], arguments[0]};
  return {looped(operands, first_dtype(arguments)), looped(operands, first_dtype(arguments))};
}

ShapeRule loss(size_t reduction) {
  return [reduction](Arguments arguments) {
    const at::Tensor& input = arguments[0].toTensor();
    TORCH_CHECK(input.sizes() == arguments[1].toTensor().sizes());
    const bool is_reduced = arguments[reduction].toInt() != at::Reduction::None;
    return c10::Stack{is_reduced ? make({}, input) : looped(arguments.slice(0, 2), input.scalar_type())};
  };
}

ShapeRule like(std::vector<size_t> arguments) {
  return [indices = std::move(arguments)](Arguments arguments) {
    c10::Stack results;
    for (const size_t index : indices) {
      results.emplace_back(contiguous_like(arguments[index].toTensor()));
    }
    return results;
  };
}

ShapeRule preserve(std::vector<size_t> arguments) {
  return [indices = std::move(arguments)](Arguments arguments) {
    c10::Stack results;
    for (const size_t index : indices) {
      results.emplace_back(at::empty_like(arguments[index].toTensor()));
    }
    return results;
  };
}

// ---- Reductions ----

namespace {

std::vector<int64_t> reduced(const at::Tensor& tensor, const c10::IValue& dims, bool keep) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  std::vector<bool> is_reduced(sizes.size(), dims.isNone() || (dims.isIntList() && dims.toListRef().empty()));
  for (const int64_t dim : dims.isInt()    ? std::vector{dims.toInt()}
                           : dims.isNone() ? std::vector<int64_t>()
                                           : dims.toIntVector()) {
    if (!sizes.empty()) {
      const int64_t place = at::maybe_wrap_dim(dim, tensor.dim());
      TORCH_CHECK(!is_reduced[place]); // it is named twice
      is_reduced[place] = true;
    }
  }
  for (size_t i = sizes.size(); i-- > 0;) {
    if (is_reduced[i]) {
      keep ? void(sizes[i] = 1) : void(sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(i)));
    }
  }
  return sizes;
}

} // namespace

at::ScalarType dtype_of_sum(Arguments arguments) {
  const auto own = first_dtype(arguments);
  const auto summed = c10::isIntegralType(own, /*includeBool=*/true) ? at::kLong : own;
  return arguments.back().toOptional<at::ScalarType>().value_or(summed);
}

ShapeRule number(DtypeRule dtype) {
  return [dtype](Arguments arguments) {
    TORCH_CHECK(arguments[0].toTensor().numel() != 0);
    return c10::Stack{make({}, arguments[0].toTensor(), dtype(arguments))};
  };
}

ShapeRule reduce(size_t dims, size_t keep, std::vector<DtypeRule> dtypes) {
  return [dims, keep, dtypes = std::move(dtypes)](Arguments arguments) {
    const at::Tensor& input = arguments[0].toTensor();
    TORCH_CHECK(input.numel() != 0);
    const auto sizes = reduced(input, arguments[dims], keep != kNeverKept && arguments[keep].toBool());
    c10::Stack results;
    for (const DtypeRule dtype : dtypes) {
      results.emplace_back(make(sizes, input, dtype(arguments)));
    }
    return results;
  };
}

at::ScalarType index_dtype(Arguments /*arguments*/) {
  return at::kLong;
}

// ---- Normalizations ----

namespace {

// Of the statistics, which are computed like the parameters.
at::ScalarType parameter_dtype(const at::Tensor& input, const at::Tensor& weight) {
  return weight.defined() && weight.scalar_type() != input.scalar_type() ? at::kFloat : input.scalar_type();
}

} // namespace

c10::Stack layer_norm(Arguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const auto normalized = arguments[1].toIntVector();
  const at::Tensor weight = optional_tensor(arguments[2]);
  const at::Tensor bias = optional_tensor(arguments[3]);
  const auto sizes = input.sizes();
  TORCH_CHECK(!normalized.empty() && normalized.size() <= sizes.size());
  const size_t axis = sizes.size() - normalized.size();
  TORCH_CHECK(sizes.slice(axis) == c10::IntArrayRef(normalized));
  for (const at::Tensor& parameter : {weight, bias}) {
    TORCH_CHECK(!parameter.defined() || parameter.sizes() == c10::IntArrayRef(normalized));
  }
  auto statistics = sizes.vec();
  std::fill(statistics.begin() + static_cast<ptrdiff_t>(axis), statistics.end(), 1);
  const auto dtype = parameter_dtype(input, weight.defined() ? weight : bias);
  return {contiguous_like(input), make(statistics, input, dtype), make(statistics, input, dtype)};
}

namespace {

at::Tensor like_or_none(const at::Tensor& tensor) {
  return tensor.defined() ? contiguous_like(tensor) : at::Tensor();
}

} // namespace

c10::Stack layer_norm_backward(Arguments arguments) {
  return {
      contiguous_like(arguments[1].toTensor()),
      like_or_none(optional_tensor(arguments[5])),
      like_or_none(optional_tensor(arguments[6]))};
}

c10::Stack group_norm(Arguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor weight = optional_tensor(arguments[1]);
  const at::Tensor bias = optional_tensor(arguments[2]);
  const auto dtype = parameter_dtype(input, weight.defined() ? weight : bias);
  const std::vector<int64_t> statistics{arguments[3].toInt(), arguments[6].toInt()};
  return {
      at::empty(input.sizes(), input.options(), input.suggest_memory_format()),
      make(statistics, input, dtype),
      make(statistics, input, dtype)};
}

c10::Stack group_norm_backward(Arguments arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor weight = optional_tensor(arguments[4]);
  const at::Tensor parameter = make({arguments[6].toInt()}, weight.defined() ? weight : input);
  return {contiguous_like(input), parameter, at::empty_like(parameter)};
}

c10::Stack batch_norm_backward(Arguments arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  // Of the dtype of the weight, or else of the statistics.
  at::Tensor like = optional_tensor(arguments[2]);
  for (const c10::IValue& argument : arguments.slice(3, 4)) {
    const at::Tensor statistics = optional_tensor(argument);
    if (!like.defined() && statistics.defined() && statistics.numel() != 0) {
      like = statistics;
    }
  }
  const at::Tensor parameter = make({input.size(1)}, like.defined() ? like : input);
  return {contiguous_like(input), parameter, at::empty_like(parameter)};
}

c10::Stack weight_norm(Arguments arguments) {
  const at::Tensor& norm = arguments[1].toTensor();
  TORCH_CHECK(c10::isFloatingType(norm.scalar_type()));
  const auto dtype = c10::isReducedFloatingType(norm.scalar_type()) ? at::kFloat : norm.scalar_type();
  return {
      contiguous_like(arguments[0].toTensor()),
      at::empty_strided(norm.sizes(), norm.strides(), norm.options().dtype(dtype))};
}

// ---- Images ----

namespace {

// Of what is divided by. The kernels say what is wrong.
void check_positive(c10::IntArrayRef numbers) {
  TORCH_CHECK(std::all_of(numbers.begin(), numbers.end(), [](int64_t number) { return number > 0; }));
}

// `convolution` itself has them all.
struct Convolution {
  Convolution(const at::Tensor& input, const at::Tensor& weight, Arguments numbers)
      : stride(numbers[0].toIntVector()),
        padding(numbers[1].toIntVector()),
        dilation(numbers[2].toIntVector()),
        transposed(numbers[3].toBool()),
        output_padding(numbers[4].toIntVector()),
        groups(numbers[5].toInt()) {
    TORCH_CHECK(input.dim() >= 3 && input.dim() == weight.dim() && input.scalar_type() == weight.scalar_type());
    const auto spatial = static_cast<size_t>(input.dim() - 2);
    for (const auto* list : {&stride, &padding, &dilation, &output_padding}) {
      TORCH_CHECK(list->size() == spatial);
    }
    check_positive(stride);
    check_positive(dilation);
    check_positive(groups);
    for (size_t i = 0; transposed && i < spatial; ++i) {
      TORCH_CHECK(output_padding[i] < std::max(stride[i], dilation[i]));
    }
  }

  std::vector<int64_t> output_sizes(const at::Tensor& input, const at::Tensor& weight) const {
    namespace native = at::native;
    return transposed ? native::conv_input_size(
                            input.sizes(),
                            weight.sizes(),
                            padding,
                            output_padding,
                            stride,
                            dilation,
                            groups)
                      : native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  }

  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> dilation;
  bool transposed;
  std::vector<int64_t> output_padding;
  int64_t groups;
};

} // namespace

c10::Stack convolution(Arguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& weight = arguments[1].toTensor();
  const at::Tensor bias = optional_tensor(arguments[2]);
  const Convolution call(input, weight, arguments.slice(3));
  const auto sizes = call.output_sizes(input, weight);
  const bool fits = !bias.defined() || (bias.dim() == 1 && bias.size(0) == sizes[1] && bias.dtype() == input.dtype());
  TORCH_CHECK(fits && input.numel() != 0 && std::all_of(sizes.begin(), sizes.end(), [](int64_t n) { return n > 0; }));
  return {make(sizes, input)};
}

c10::Stack convolution_backward(Arguments arguments) {
  const at::Tensor& gradient = arguments[0].toTensor();
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor& weight = arguments[2].toTensor();
  TORCH_CHECK(Convolution(input, weight, arguments.slice(4)).output_sizes(input, weight) == gradient.sizes());
  return {contiguous_like(input), contiguous_like(weight), make({gradient.size(1)}, weight)};
}

namespace {

int64_t num_windows(const at::Tensor& image, const Arguments& numbers) {
  const auto kernel = numbers[0].toIntVector();
  const auto dilation = numbers[1].toIntVector();
  const auto padding = numbers[2].toIntVector();
  const auto stride = numbers[3].toIntVector();
  check_positive(kernel);
  check_positive(dilation);
  check_positive(stride);
  int64_t product = 1;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t size = image.size(image.dim() - 2 + static_cast<int64_t>(i));
    const int64_t rest = size + 2 * padding.at(i) - dilation.at(i) * (kernel.at(i) - 1) - 1;
    TORCH_CHECK(padding[i] >= 0 && rest >= 0);
    product *= rest / stride.at(i) + 1;
  }
  return product;
}

} // namespace

c10::Stack windows(Arguments arguments) {
  const at::Tensor& image = arguments[0].toTensor();
  TORCH_CHECK(image.dim() == 4 && image.numel() != 0);
  const int64_t channels = image.size(1) * c10::multiply_integers(arguments[1].toIntVector());
  return {make({image.size(0), channels, num_windows(image, arguments.slice(1))}, image)};
}

c10::Stack image_of_windows(Arguments arguments) {
  const at::Tensor& columns = arguments[0].toTensor();
  TORCH_CHECK(columns.dim() == 3 && columns.numel() != 0);
  const auto size = arguments[1].toIntVector();
  const int64_t kernel = c10::multiply_integers(arguments[2].toIntVector());
  check_positive(kernel);
  TORCH_CHECK(size.size() == 2 && columns.size(1) % kernel == 0);
  const at::Tensor image = make({columns.size(0), columns.size(1) / kernel, size[0], size[1]}, columns);
  TORCH_CHECK(num_windows(image, arguments.slice(2)) == columns.size(2));
  return {image};
}

c10::Stack reflected(Arguments arguments) {
  const at::Tensor& image = arguments[0].toTensor();
  const auto padding = arguments[1].toIntVector();
  TORCH_CHECK(image.dim() == 4 && image.numel() != 0 && padding.size() == 4);
  auto sizes = image.sizes().vec();
  for (size_t i = 0; i < 4; ++i) {
    int64_t& size = sizes[3 - i / 2];
    TORCH_CHECK(padding[i] >= 0 && padding[i] < image.size(static_cast<int64_t>(3 - i / 2)));
    size += padding[i];
  }
  return {make(sizes, image)};
}

c10::Stack adaptive_average(Arguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const auto output = arguments[1].toIntVector();
  TORCH_CHECK(output.size() == 2 && input.numel() != 0 && (input.dim() == 3 || input.dim() == 4));
  TORCH_CHECK(c10::isFloatingType(input.scalar_type()));
  auto sizes = input.sizes().vec();
  std::copy(output.begin(), output.end(), sizes.end() - 2);
  return {at::empty(sizes, input.options(), input.suggest_memory_format())};
}

c10::Stack adaptive_average_backward(Arguments arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  TORCH_CHECK(arguments[0].toTensor().numel() != 0 && c10::isFloatingType(input.scalar_type()));
  return {at::empty(input.sizes(), input.options(), input.suggest_memory_format())};
}

c10::Stack sampled_grid(Arguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& grid = arguments[1].toTensor();
  TORCH_CHECK(input.dim() == 4 && grid.dim() == 4 && grid.size(3) == 2 && input.size(0) == grid.size(0));
  TORCH_CHECK(input.dtype() == grid.dtype() && input.numel() != 0);
  return {make({input.size(0), input.size(1), grid.size(1), grid.size(2)}, input)};
}

c10::Stack loss_of_images(Arguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& target = arguments[1].toTensor();
  const at::Tensor weight = optional_tensor(arguments[2]);
  TORCH_CHECK(input.dim() == 4 && target.dim() == 3 && target.scalar_type() == at::kLong);
  TORCH_CHECK(target.size(0) == input.size(0) && target.sizes().slice(1) == input.sizes().slice(2));
  TORCH_CHECK(!weight.defined() || weight.numel() == input.size(1));
  const bool is_reduced = arguments[3].toInt() != at::Reduction::None;
  return {is_reduced ? make({}, input) : make(target.sizes(), input), make({}, input)};
}

c10::Stack ctc_loss(Arguments arguments) {
  const auto [loss, alpha] = at::native::ctc_loss_meta(
      arguments[0].toTensor(),
      arguments[1].toTensor(),
      arguments[2].toIntVector(),
      arguments[3].toIntVector(),
      arguments[4].toInt(),
      arguments[5].toBool());
  return {loss, alpha};
}

// ---- Attention ----

namespace {

// Computed with the heads next to the channels.
at::Tensor with_heads_inside(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.dim() == 4);
  return make({tensor.size(0), tensor.size(2), tensor.size(1), tensor.size(3)}, tensor).transpose(1, 2);
}

} // namespace

c10::Stack attention(Arguments arguments) {
  const at::Tensor& query = arguments[0].toTensor();
  const auto dtype = c10::isReducedFloatingType(query.scalar_type()) ? at::kFloat : query.scalar_type();
  return {at::empty_like(query), make({query.size(0), query.size(2), query.size(1)}, query, dtype).transpose(1, 2)};
}

c10::Stack attention_backward(Arguments arguments) {
  return {
      with_heads_inside(arguments[1].toTensor()),
      with_heads_inside(arguments[2].toTensor()),
      with_heads_inside(arguments[3].toTensor())};
}

// ---- Tables and indices ----

c10::Stack selected(Arguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& index = arguments[2].toTensor();
  TORCH_CHECK(input.dim() > 0 && index.dim() == 1 && c10::isIntegralType(index.scalar_type(), /*includeBool=*/false));
  auto sizes = input.sizes().vec();
  sizes[at::maybe_wrap_dim(arguments[1].toInt(), input.dim())] = index.numel();
  return {make(sizes, input)};
}

c10::Stack taken(Arguments arguments) {
  const at::Tensor& index = arguments[1].toTensor();
  TORCH_CHECK(index.scalar_type() == at::kLong && arguments[0].toTensor().numel() != 0);
  return {make(index.sizes(), arguments[0].toTensor())};
}

c10::Stack rolled(Arguments arguments) {
  return {at::native::roll(arguments[0].toTensor(), arguments[1].toIntVector(), arguments[2].toIntVector())};
}

c10::Stack repeated(Arguments arguments) {
  const at::Tensor& tile = arguments[0].toTensor();
  auto sizes = arguments[1].toIntVector();
  TORCH_CHECK(sizes.size() >= tile.sizes().size());
  const size_t first = sizes.size() - tile.sizes().size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    TORCH_CHECK(sizes[i] >= 0);
    sizes[i] *= i < first ? 1 : tile.sizes()[i - first];
  }
  return {make(sizes, tile)};
}

c10::Stack embedding_gradient(Arguments arguments) {
  const at::Tensor& gradient = arguments[0].toTensor();
  return {make({arguments[2].toInt(), gradient.size(-1)}, gradient)};
}

c10::Stack repeats(Arguments arguments) {
  const at::Tensor& counts = arguments[0].toTensor();
  return {make({counts.numel() == 0 ? 0 : arguments[1].toInt()}, counts)};
}

ShapeRule places_of(size_t values, size_t is_int32) {
  return [values, is_int32](Arguments arguments) {
    const auto dtype = arguments[is_int32].toBool() ? at::kInt : at::kLong;
    TORCH_CHECK(values != 0 || arguments[1].toTensor().dim() == 1); // boundaries
    return c10::Stack{make(arguments[values].toTensor().sizes(), arguments[values].toTensor(), dtype)};
  };
}

c10::Stack drawn(Arguments arguments) {
  auto sizes = arguments[0].toTensor().sizes().vec();
  const int64_t num_drawn = arguments[1].toInt();
  TORCH_CHECK(sizes.size() == 1 || sizes.size() == 2);
  TORCH_CHECK(num_drawn > 0 && (arguments[2].toBool() || num_drawn <= sizes.back()));
  TORCH_CHECK(at::isFloatingType(arguments[0].toTensor().scalar_type()));
  sizes.back() = num_drawn;
  return {make(sizes, arguments[0].toTensor(), at::kLong)};
}

// ---- Writes ----

c10::Stack broadcast(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  TORCH_CHECK(at::infer_size(self.sizes(), arguments[1].toTensor().sizes()) == self.sizes());
  return {self};
}

c10::Stack masked(Arguments arguments) {
  TORCH_CHECK(arguments[1].toTensor().scalar_type() == at::kBool);
  return broadcast(arguments);
}

c10::Stack nothing(Arguments /*arguments*/) {
  return {};
}

c10::Stack product(Arguments arguments) {
  const at::Tensor& first = arguments[0].toTensor();
  const at::Tensor& second = arguments[1].toTensor();
  TORCH_CHECK(first.dim() == 1 && first.sizes() == second.sizes() && first.dtype() == second.dtype());
  return {make({}, first)};
}

c10::Stack product_and_term(Arguments arguments) {
  const at::Tensor& term = arguments[0].toTensor();
  at::Tensor result = at::compositeexplicitautogradnonfunctional::addmm(
      term,
      arguments[1].toTensor(),
      arguments[2].toTensor(),
      arguments[3].toScalar(),
      arguments[4].toScalar());
  // Only the CPU's kernel checks this: here one number stands for the term, since the message names the CPU's type.
  const at::Tensor number = at::empty({1}, term.options().device(at::kCPU));
  number.as_strided(term.sizes(), std::vector<int64_t>(term.dim(), 0)).expand(result.sizes());
  return {std::move(result)};
}

c10::Stack product_with_vector(Arguments arguments) {
  const at::Tensor& matrix = arguments[0].toTensor();
  const at::Tensor& vector = arguments[1].toTensor();
  TORCH_CHECK(matrix.dim() == 2 && vector.dim() == 1 && matrix.size(1) == vector.size(0));
  return {make({matrix.size(0)}, matrix)};
}

namespace {

// Of grouped products: the rows, or columns, of matrices are multiples of so many bytes apart.
constexpr int64_t kRowAlignment = 16;

// Others are refused, and those with gaps in rows or columns.
void check_matrices(const at::Tensor& matrices) {
  const int64_t in_row = matrices.size(-1);
  const int64_t in_column = matrices.size(-2);
  const int64_t row = matrices.stride(-2);
  const int64_t column = matrices.stride(-1);
  const auto bytes = static_cast<int64_t>(matrices.itemsize());
  const bool has_columns = row == 1 && column >= std::max<int64_t>(in_column, 1);
  const bool has_rows = column == 1 && row >= std::max<int64_t>(in_row, 1);
  TORCH_CHECK(has_columns ? column * bytes % kRowAlignment == 0 : has_rows && row * bytes % kRowAlignment == 0);
}

} // namespace

// Of matrices and of groups of rows, of columns, or of terms, that end where the third argument says.
c10::Stack grouped_product(Arguments arguments) {
  const at::Tensor& first = arguments[0].toTensor();
  const at::Tensor& second = arguments[1].toTensor();
  const at::Tensor ends = optional_tensor(arguments[2]);
  const auto dtype = first.scalar_type();
  const auto is_pair_of = [&](int64_t a, int64_t b) { return first.dim() == a && second.dim() == b; };
  TORCH_CHECK(is_pair_of(2, 2) || is_pair_of(2, 3) || is_pair_of(3, 2) || is_pair_of(3, 3));
  TORCH_CHECK(first.size(-1) == second.size(-2) && second.scalar_type() == dtype);
  TORCH_CHECK(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf);
  TORCH_CHECK(arguments[3].isNone() && (arguments[4].isNone() || arguments[4].toScalarType() == dtype));
  check_matrices(first);
  check_matrices(second);
  c10::DimVector sizes{first.size(-2), second.size(-1)};
  if (is_pair_of(3, 3)) {
    TORCH_CHECK(first.size(0) == second.size(0) && !ends.defined());
    sizes.insert(sizes.begin(), first.size(0));
  } else {
    TORCH_CHECK(ends.defined() && ends.dim() == 1 && ends.scalar_type() == at::kInt);
    const at::Tensor& groups = first.dim() == 3 ? first : second;
    TORCH_CHECK(groups.dim() == 2 || groups.size(0) == ends.size(0));
    if (is_pair_of(2, 2)) {
      sizes.insert(sizes.begin(), ends.size(0));
    }
  }
  const int64_t unit = kRowAlignment / static_cast<int64_t>(first.itemsize());
  const int64_t row = (sizes.back() + unit - 1) / unit * unit;
  c10::DimVector strides{row, 1};
  if (sizes.size() == 3) {
    strides.insert(strides.begin(), sizes[1] * row);
  }
  return {at::empty_strided(sizes, strides, first.options())};
}

} // namespace lazyplug::shape_rules
