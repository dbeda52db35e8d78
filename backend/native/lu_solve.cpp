#include <ATen/native/Resize.h>

#include "backend/native/kernels.h"
#include "backend/ops/op_registry.h"
#include "backend/recording/tracer.h"

// The CPU's kernel solves X A = B as A^H X^H = B^H, and returns a conjugate view of
// what it has found, or makes one of the argument out=. A trace holds no conjugate
// results, so that is turned around before it is recorded.
namespace lazyplug::native {
namespace {

at::Tensor record(const at::Tensor& lu, const at::Tensor& pivots, const at::Tensor& b, bool left, bool adjoint) {
  c10::Stack stack{lu, pivots, b, left, adjoint};
  trace(op_info("aten::linalg_lu_solve", ""), &stack);
  return stack.back().toTensor();
}

// What the CPU refuses, or has nothing to do for, it is to see as it is.
bool is_turned_around(const at::Tensor& lu, const at::Tensor& b) {
  return b.is_complex() && lu.dim() >= 2 && b.dim() >= 2 && lu.size(-1) == b.size(-1) && lu.numel() > 0 &&
         b.numel() > 0;
}

bool may_hold(const at::Tensor& out, const at::Tensor& result) {
  return out.scalar_type() == result.scalar_type() && out.device() == result.device();
}

// What is resized gets the strides, too, and what has them becomes a conjugate view.
at::Tensor& write(const at::Tensor& conjugate, at::Tensor& out) {
  if (at::native::resize_output(out, conjugate.sizes())) {
    out.as_strided_(conjugate.sizes(), conjugate.strides());
  }
  if (out.strides() != conjugate.strides()) {
    return out.copy_(conjugate);
  }
  out.copy_(conjugate.conj());
  out._set_conj(true);
  return out;
}

} // namespace

at::Tensor
linalg_lu_solve(const at::Tensor& lu, const at::Tensor& pivots, const at::Tensor& b, bool left, bool adjoint) {
  if (left || !is_turned_around(lu, b)) {
    return record(lu, pivots, b, left, adjoint);
  }
  return record(lu, pivots, b.mH(), true, !adjoint).mH();
}

at::Tensor& linalg_lu_solve_out(
    const at::Tensor& lu,
    const at::Tensor& pivots,
    const at::Tensor& b,
    bool left,
    bool adjoint,
    at::Tensor& out) {
  if (!left && is_turned_around(lu, b) && may_hold(out, b)) {
    return write(native::linalg_lu_solve(lu, pivots, b, left, adjoint), out);
  }
  c10::Stack stack{lu, pivots, b, left, adjoint, out};
  trace(op_info("aten::linalg_lu_solve", "out"), &stack);
  return out;
}

} // namespace lazyplug::native
