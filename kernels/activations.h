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

template <typename V>
V gelu(V x) {
  using T = Element<V>;
  return x * T(0.5) * (T(1) + erf(x * T(M_SQRT1_2)));
}

template <typename V>
V gelu_backward(V gradient, V x) {
  using T = Element<V>;
  const V probability = T(0.5) * (T(1) + erf(x * T(M_SQRT1_2)));
  const V density = T(M_2_SQRTPI * M_SQRT1_2 * 0.5) * exp(x * x * T(-0.5));
  return gradient * multiply_add(x, density, probability);
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
