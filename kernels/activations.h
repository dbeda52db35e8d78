// Activations and their gradients, in the order of operations of the CPU's vectorised kernels. Compiled within each
// target's namespace, as kernels/vector.h is.
#pragma once

#include "kernels/vector_math.h"

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

// The logistic function is dividend / divisor.
template <typename V>
struct Logistic {
  V dividend;
  V divisor;
};

// exp(-x) overflows where the result is denormal.
Logistic<Floats> logistic(Floats x) {
  const Floats power = exp(-abs(x));
  return {x < 0.0F ? power : broadcast<Floats>(1), power + 1.0F};
}

Logistic<Doubles> logistic(Doubles x) {
  return {broadcast<Doubles>(1), exp(-x) + 1.0};
}

template <typename V>
V sigmoid(V x) {
  const auto [dividend, divisor] = logistic(x);
  return dividend / divisor;
}

template <typename V>
V silu(V x) {
  const auto [dividend, divisor] = logistic(x);
  return x * dividend / divisor;
}

template <typename V>
V silu_backward(V gradient, V x) {
  using T = Element<V>;
  const V y = sigmoid(x);
  return gradient * y * multiply_add(x, T(1) - y, T(1));
}

// exp(-x^2 / 2): the density of normally distributed numbers is a multiple of it.
template <typename V>
V bell(V x) {
  return exp(x * x * Element<V>(-0.5));
}

// The probability that a normally distributed number is below x.
template <typename V>
V normal_probability(V x) {
  using T = Element<V>;
  return T(0.5) * (T(1) + erf(x * T(M_SQRT1_2)));
}

// Without AVX-512, to look up one of erf's coefficients takes several instructions. These need no table: the
// probability of the tail on a number's side is exp(-x^2 / 2) times a quotient of polynomials, taken for 0 from
// kTailEnd on. So where it is small, it keeps its digits.
#ifndef __AVX512F__
Floats bell(Floats x) {
  const Floats size = at_most(abs(x), tables::kTailEnd);
  const Reduced reduced(size * size * -0.5F);
  const Floats result = exp_of_rest(reduced.rest) * power_of_two(reduced.exponent_bits);
  return size < tables::kTailEnd ? result : Floats{};
}

Floats normal_probability(Floats x) {
  const Floats size = at_most(abs(x), tables::kTailEnd);
  const Floats power = bell(x); // first, since it takes longest
  const Floats tail = power * (polynomial(tables::kTailNumerator, size) / polynomial(tables::kTailDenominator, size));
  return x < 0.0F ? tail : 1.0F - tail;
}
#endif

template <typename V>
V gelu(V x) {
  return x * normal_probability(x);
}

template <typename V>
V gelu_backward(V gradient, V x) {
  const V density = Element<V>(M_2_SQRTPI * M_SQRT1_2 * 0.5) * bell(x);
  return gradient * multiply_add(x, density, normal_probability(x));
}

constexpr double kGeluSlope = M_SQRT2 * M_2_SQRTPI * 0.5;
constexpr double kGeluCubic = 0.044715;

template <typename V>
V gelu_inner(V x) {
  using T = Element<V>;
  return T(kGeluSlope) * multiply_add(x * x * x, T(kGeluCubic), x);
}

template <typename V>
V gelu_tanh(V x) {
  using T = Element<V>;
  return T(0.5) * x * (T(1) + tanh(gelu_inner(x)));
}

template <typename V>
V gelu_tanh_backward(V gradient, V x) {
  using T = Element<V>;
  const V inner = tanh(gelu_inner(x));
  const V of_left = T(0.5) * (T(1) + inner);
  const V of_tanh = multiply_add(-inner, inner, T(1));
  const V of_inner = T(kGeluSlope) * multiply_add(x * x, T(3) * T(kGeluCubic), T(1));
  return gradient * multiply_add(T(0.5) * x * of_tanh, of_inner, of_left);
}

template <typename V>
V softplus(V x, V beta, V threshold) {
  const V scaled = x * beta;
  return scaled > threshold ? x : log1p(exp(scaled)) / beta;
}

template <typename V>
V softplus_backward(V gradient, V x, V beta, V threshold) {
  const V scaled = x * beta;
  const V power = exp(scaled);
  return scaled > threshold ? gradient : gradient * power / (power + Element<V>(1));
}

template <typename V>
V sigmoid_backward(V gradient, V y) {
  return gradient * (Element<V>(1) - y) * y;
}

template <typename V>
V tanh_backward(V gradient, V y) {
  return gradient * multiply_add(-y, y, Element<V>(1));
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
