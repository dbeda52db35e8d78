#pragma once

#include <cstdint>
#include <vector>

#include "backend/ops/op_table.h"

// The shape rules that the table of ops (backend/registration/op_table.h) refers to.
namespace lazyplug::shape_rules {

using Arguments = c10::ArrayRef<c10::IValue>;

// The dtype of a result.
using DtypeRule = at::ScalarType (*)(Arguments);

at::ScalarType first_dtype(Arguments arguments);
at::ScalarType real_dtype(Arguments arguments);
at::ScalarType floating_dtype(Arguments arguments);
// Of ops that refuse integers ...
at::ScalarType inexact_dtype(Arguments arguments);
at::ScalarType inexact_real_dtype(Arguments arguments);
// ... and complex numbers.
at::ScalarType only_floating_dtype(Arguments arguments);
at::ScalarType boolean(Arguments arguments);
at::ScalarType index_dtype(Arguments arguments);
// Of the second and third argument.
at::ScalarType dtype_of_choices(Arguments arguments);
// Of the first two.
at::ScalarType common_dtype(Arguments arguments);
at::ScalarType complex_dtype(Arguments arguments);
// Of sums; the last argument may tell another.
at::ScalarType dtype_of_sum(Arguments arguments);

// A loop over all tensors together.
ShapeRule loop(DtypeRule dtype = first_dtype);
// Of (gradient, self, weight), where the loop begins with the last two.
c10::Stack prelu_gradients(Arguments arguments);
// A loss of two tensors of the same sizes, not reduced if the argument says so.
ShapeRule loss(size_t reduction);
// Results that have the sizes and dtypes of these arguments, and are contiguous.
ShapeRule like(std::vector<size_t> arguments);
// Results that lie like these arguments.
ShapeRule preserve(std::vector<size_t> arguments);

// One number.
ShapeRule number(DtypeRule dtype = first_dtype);
// `dims` and `keep` are arguments. As many results as there are dtypes.
ShapeRule reduce(size_t dims, size_t keep, std::vector<DtypeRule> dtypes);
inline constexpr size_t kNeverKept = SIZE_MAX;

c10::Stack layer_norm(Arguments arguments);
c10::Stack layer_norm_backward(Arguments arguments);
c10::Stack group_norm(Arguments arguments);
c10::Stack group_norm_backward(Arguments arguments);
c10::Stack batch_norm_backward(Arguments arguments);
c10::Stack weight_norm(Arguments arguments);

c10::Stack convolution(Arguments arguments);
c10::Stack convolution_backward(Arguments arguments);
c10::Stack windows(Arguments arguments);
c10::Stack image_of_windows(Arguments arguments);
c10::Stack reflected(Arguments arguments);
c10::Stack adaptive_average(Arguments arguments);
c10::Stack adaptive_average_backward(Arguments arguments);
c10::Stack sampled_grid(Arguments arguments);
c10::Stack loss_of_images(Arguments arguments);
c10::Stack ctc_loss(Arguments arguments);

c10::Stack attention(Arguments arguments);
c10::Stack attention_backward(Arguments arguments);

c10::Stack selected(Arguments arguments);
c10::Stack taken(Arguments arguments);
c10::Stack rolled(Arguments arguments);
c10::Stack repeated(Arguments arguments);
c10::Stack embedding_gradient(Arguments arguments);
c10::Stack repeats(Arguments arguments);
// Where these values belong, as int32 if the argument says so.
ShapeRule places_of(size_t values, size_t is_int32);
c10::Stack drawn(Arguments arguments);
// Of two vectors.
c10::Stack product(Arguments arguments);
// A product of matrices, added to what can be expanded to it.
c10::Stack product_and_term(Arguments arguments);
c10::Stack product_with_vector(Arguments arguments);
c10::Stack grouped_product(Arguments arguments);

// Writes: the second tensor is broadcast to the first.
c10::Stack broadcast(Arguments arguments);
c10::Stack masked(Arguments arguments);
c10::Stack nothing(Arguments arguments);

} // namespace lazyplug::shape_rules
