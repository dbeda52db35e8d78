#include "lowering/calls/distance_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/sqrt.h>

#include <algorithm>

#include "lowering/calls/call_results.h"
#include "lowering/calls/dense_tensors.h"
#include "lowering/calls/small_product.h"
#include "lowering/calls/small_sum.h"
#include "lowering/ir/geometry.h"

namespace lazyplug {
namespace {

at::Tensor empty(c10::IntArrayRef sizes, c10::ScalarType dtype) {
  return at::detail::empty_cpu(sizes, dtype);
}

// One in each row.
const at::Tensor* find_points(const c10::IValue& argument) {
  const auto* points = dense_floats(argument);
  return points && points->dim() == 2 ? points : nullptr;
}

// The sum of each point's squares. Undefined if there are too many numbers.
at::Tensor square_norms(const at::Tensor& points) {
  const auto sum = SmallSum::plan(
      kernels::Opcode::kRowSum,
      Geometry::contiguous(points.scalar_type(), points.sizes()),
      c10::List<int64_t>({-1}));
  const bool is_single = points.size(1) == 1; // number, which is not added up
  if (!sum && !is_single) {
    return {};
  }
  at::Tensor squares = empty(points.sizes(), points.scalar_type());
  with_dtype(points, [&]<typename T>(T) {
    const T* from = points.const_data_ptr<T>();
    std::transform(from, from + points.numel(), squares.mutable_data_ptr<T>(), [](T x) { return x * x; });
  });
  if (is_single) {
    return squares;
  }
  at::Tensor norms = empty({points.size(0)}, points.scalar_type());
  sum->run(squares.const_data_ptr(), norms.mutable_data_ptr());
  return norms;
}

// Of each point (scale * p, its square norm, 1), or with the last two swapped.
template <typename T>
void extend(const at::Tensor& points, const at::Tensor& norms, T scale, bool is_norm_last, T* to) {
  const int64_t size = points.size(1);
  const T* from = points.const_data_ptr<T>();
  const T* norm = norms.const_data_ptr<T>();
  for (int64_t i = 0; i < points.size(0); ++i, from += size, to += size + 2) {
    std::transform(from, from + size, to, [scale](T x) { return scale * x; });
    to[size] = is_norm_last ? 1 : norm[i];
    to[size + 1] = is_norm_last ? norm[i] : 1;
  }
}

template <typename T>
void raise_to_zero(at::Tensor& tensor) {
  if (tensor.numel() >= at::internal::GRAIN_SIZE) { // for several threads
    at::clamp_min_(tensor, 0);
    return;
  }
  T* data = tensor.mutable_data_ptr<T>();
  std::transform(data, data + tensor.numel(), data, [](T x) { return x < 0 ? 0 : x; }); // NaN and -0 stay
}

// Undefined if this is left to PyTorch.
template <typename T>
at::Tensor compute(const at::Tensor& a, const at::Tensor& b) {
  const auto dtype = a.scalar_type();
  const int64_t inner = a.size(1) + 2;
  Geometry columns = Geometry::contiguous(dtype, {inner, b.size(0)});
  columns.strides = {1, inner};
  const auto product = SmallProduct::plan(
      nullptr,
      Geometry::contiguous(dtype, {a.size(0), inner}),
      columns,
      Geometry::contiguous(dtype, {a.size(0), b.size(0)}));
  if (!product || !product->goes(/*alpha=*/1, /*beta=*/0)) {
    return {};
  }
  const at::Tensor a_norms = square_norms(a);
  const at::Tensor b_norms = square_norms(b);
  if (!a_norms.defined() || !b_norms.defined()) {
    return {};
  }
  // The square of a distance is a - 2 ab + b, which PyTorch computes as one product of what is longer by two.
  const at::Tensor first = empty({a.size(0), inner}, dtype);
  const at::Tensor second = empty({b.size(0), inner}, dtype);
  extend<T>(a, a_norms, -2, /*is_norm_last=*/false, first.mutable_data_ptr<T>());
  extend<T>(b, b_norms, 1, /*is_norm_last=*/true, second.mutable_data_ptr<T>());
  at::Tensor result = product->run(/*alpha=*/1, first.const_data_ptr(), second.const_data_ptr(), nullptr);
  raise_to_zero<T>(result);
  return at::sqrt_(result);
}

} // namespace

bool run_euclidean_dist(const OpInfo& op, c10::Stack& stack, bool /*reads_last*/) {
  const auto arguments = torch::jit::last(stack, op.num_args());
  const auto* a = find_points(arguments[0]);
  const auto* b = find_points(arguments[1]);
  if (!a || !b || a->scalar_type() != b->scalar_type() || a->size(1) != b->size(1)) {
    return false;
  }
  at::Tensor result = with_dtype(*a, [&]<typename T>(T) { return compute<T>(*a, *b); });
  if (!result.defined()) {
    return false;
  }
  return_result(op, stack, std::move(result));
  return true;
}

} // namespace lazyplug
