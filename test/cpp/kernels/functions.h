#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/opcode.h"

namespace lazyplug::kernels {

// An opcode as a function of one float32: what it is in float64, without cancellation, and what eager makes of it. For
// a gradient, that of the result is 1.
struct Function {
  using Of = at::Tensor (*)(const at::Tensor&);
  Opcode opcode;
  Of exact;
  Of eager;
  double max_ulp;
  // Where more ulps are wrong, because eager's formula, which is ours, cancels: the error, relative to the argument if
  // that is larger than 1.
  double max_error = 0;
};

// Units of the last place of the exact result. Infinity is the number after the largest.
inline double ulps(float result, double exact) {
  if (std::isnan(result) || std::isnan(exact)) {
    return std::isnan(result) == std::isnan(exact) ? 0 : std::numeric_limits<double>::infinity();
  }
  const auto clipped = [](double x) { return std::max(-0x1p128, std::min(0x1p128, x)); };
  const double right = clipped(exact);
  // 2^23 / 2^exponent, made of bits: this runs billions of times
  const uint64_t exponent =
      std::clamp<uint64_t>(std::bit_cast<uint64_t>(std::abs(right)) >> 52, 1023 - 126, 1023 + 127);
  return std::abs(clipped(result) - right) * std::bit_cast<double>((2 * 1023 + 23 - exponent) << 52);
}

constexpr double kSoftplusThreshold = 20; // beta is 1

inline at::Tensor logistic(const at::Tensor& x) {
  return x.neg().exp().add(1).reciprocal();
}
inline at::Tensor normal_probability(const at::Tensor& x) {
  return x.mul(-M_SQRT1_2).erfc().mul(0.5);
}
inline at::Tensor normal_density(const at::Tensor& x) {
  return x.square().mul(-0.5).exp().mul(M_2_SQRTPI * M_SQRT1_2 * 0.5);
}
// The formula of GELU by tanh is x * logistic of this.
inline at::Tensor gelu_argument(const at::Tensor& x) {
  return x.add(x.pow(3), 0.044715).mul(2 * M_SQRT2 * M_2_SQRTPI * 0.5);
}
inline at::Tensor gelu_argument_slope(const at::Tensor& x) {
  return x.square().mul(3 * 0.044715).add(1).mul(2 * M_SQRT2 * M_2_SQRTPI * 0.5);
}

inline const std::vector<Function>& functions() {
  using T = const at::Tensor&;
  static const std::vector<Function> all{
      {Opcode::kExp, at::exp, at::exp, 2},
      {Opcode::kExpm1, at::expm1, at::expm1, 2},
      {Opcode::kLog, at::log, at::log, 2},
      {Opcode::kLog1p, at::log1p, at::log1p, 2},
      {Opcode::kSin, at::sin, at::sin, 2},
      {Opcode::kCos, at::cos, at::cos, 2},
      {Opcode::kTanh, at::tanh, at::tanh, 2},
      {Opcode::kErf, at::erf, at::erf, 2},
      {Opcode::kRsqrt, at::rsqrt, at::rsqrt, 2},
      {Opcode::kSigmoid, logistic, at::sigmoid, 2.4},
      {Opcode::kSilu, [](T x) { return x.mul(logistic(x)); }, at::silu, 3, 2e-45},
      {Opcode::kGelu, [](T x) { return x.mul(normal_probability(x)); }, [](T x) { return at::gelu(x); }, 2, 1.3e-7},
      {Opcode::kGeluTanh,
       [](T x) { return x.mul(logistic(gelu_argument(x))); },
       [](T x) { return at::gelu(x, "tanh"); },
       2,
       1.3e-7},
      {Opcode::kSoftplus,
       [](T x) { return at::where(x.gt(kSoftplusThreshold), x, x.exp().log1p()); },
       [](T x) { return at::softplus(x, 1, kSoftplusThreshold); },
       2},
      {Opcode::kSiluBackward,
       [](T x) { return logistic(x).mul(x.mul(logistic(x.neg())).add(1)); },
       [](T x) { return at::silu_backward(at::ones_like(x), x); },
       3,
       1.3e-7},
      {Opcode::kGeluBackward,
       [](T x) { return normal_probability(x).add(x.mul(normal_density(x))); },
       [](T x) { return at::gelu_backward(at::ones_like(x), x); },
       2,
       1.5e-7},
      {Opcode::kGeluTanhBackward,
       [](T x) {
         const at::Tensor argument = gelu_argument(x);
         const at::Tensor left = logistic(argument);
         return left.add(x.mul(left).mul(logistic(argument.neg())).mul(gelu_argument_slope(x)));
       },
       [](T x) { return at::gelu_backward(at::ones_like(x), x, "tanh"); },
       2,
       1.5e-7},
      {Opcode::kSoftplusBackward,
       [](T x) { return logistic(x).masked_fill(x.gt(kSoftplusThreshold), 1); },
       [](T x) { return at::softplus_backward(at::ones_like(x), x, 1, kSoftplusThreshold); },
       2.4},
  };
  return all;
}

} // namespace lazyplug::kernels
