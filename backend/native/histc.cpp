#include <ATen/Functions.h>
#include <ATen/native/Resize.h>

#include "backend/native/kernels.h"
#include "backend/ops/op_registry.h"
#include "backend/recording/tracer.h"

// The CPU's kernel counts floating-point numbers only, while programs count
// integers on whatever is not the CPU. They are counted as on CUDA: bounds and
// bins are integers, and so is the result.
namespace lazyplug::native {
namespace {

struct Bounds {
  at::Tensor low;
  at::Tensor high;
};

bool is_counted_in_integers(const at::Tensor& self) {
  switch (self.scalar_type()) {
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
      return true;
    default:
      return false;
  }
}

// Never equal, so that there is a range to divide.
Bounds bounds_of(const at::Tensor& values, int64_t low, int64_t high) {
  if (low == high && values.numel() > 0) {
    const at::Tensor least = values.min();
    const at::Tensor greatest = values.max();
    const at::Tensor margin = least.eq(greatest).to(at::kLong);
    return {least - margin, greatest + margin};
  }
  TORCH_CHECK(low <= high, "max must be larger than min");
  const int64_t margin = low == high ? 1 : 0;
  return {at::scalar_tensor(low - margin, at::kLong), at::scalar_tensor(high + margin, at::kLong)};
}

at::Tensor count(const at::Tensor& self, int64_t bins, int64_t min, int64_t max) {
  TORCH_CHECK(bins > 0, "bins must be > 0");
  const at::Tensor values = self.to(at::kLong).reshape({-1});
  const auto [low, high] = bounds_of(values, min, max);
  const at::Tensor is_inside = values.ge(low).logical_and(values.le(high));
  // The last bin includes the upper bound.
  const at::Tensor bin = ((values - low) * bins).div(high - low, "trunc").clamp(0, bins - 1);
  return at::zeros({bins}, values.options()).scatter_add(0, bin, is_inside.to(at::kLong)).to(self.scalar_type());
}

} // namespace

at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  if (is_counted_in_integers(self)) {
    return count(self, bins, min.toLong(), max.toLong());
  }
  c10::Stack stack{self, bins, min, max};
  trace(op_info("aten::histc", ""), &stack);
  return stack.back().toTensor();
}

at::Tensor&
histc_out(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max, at::Tensor& out) {
  if (is_counted_in_integers(self)) {
    const at::Tensor counts = count(self, bins, min.toLong(), max.toLong());
    at::native::resize_output(out, counts.sizes());
    return out.copy_(counts);
  }
  c10::Stack stack{self, bins, min, max, out};
  trace(op_info("aten::histc", "out"), &stack);
  return out;
}

} // namespace lazyplug::native
