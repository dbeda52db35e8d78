// Functions of vectors. Compiled within each target's namespace, as kernels/vector.h is. Those of Floats are our own,
// so that they are the same whatever PyTorch is linked with; those of Doubles are the CPU's. docs/accuracy.md has what
// they were measured to be.
#pragma once

#include <limits>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <sleef.h>
#endif

#include "kernels/vector.h"
#include "kernels/vector_math_tables.h"

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// log(2) in two parts: a multiple of the first by a small integer is exact.
constexpr float kLog2High = 0x1.62e4p-1F;
constexpr float kLog2Low = 0x1.7f7d1cp-20F;

// Below, the polynomials add nothing but a zero, which may have the wrong sign, and denormal numbers are not scaled.
constexpr float kTiny = 0x1p-25F;

template <size_t kSize>
Floats polynomial(const float (&coefficients)[kSize], Floats x) {
  Floats result = broadcast<Floats>(coefficients[kSize - 1]);
#pragma GCC unroll 16
  for (size_t i = kSize - 1; i > 0; --i) {
    result = multiply_add(result, x, coefficients[i - 1]);
  }
  return result;
}

Floats power_of_two(Ints exponent) {
  return from_bits<Floats>((exponent + 127) << 23);
}

// x = rest + exponent * log(2), |rest| <= log(2) / 2
struct Reduced {
  Floats rest;
  Floats exponent;
  Ints exponent_bits; // as an integer

  explicit Reduced(Floats x) {
    constexpr float kRound = 0x1.8p23F; // has no bits behind the point
    const Floats shifted = multiply_add(x, 0x1.715476p0F, kRound);
    exponent = shifted - kRound;
    exponent_bits = bits_of(shifted) - bits_of(broadcast<Floats>(kRound));
    rest = multiply_add(exponent, -kLog2High, x);
    rest = multiply_add(exponent, -kLog2Low, rest);
  }
};

// x * 2^exponent
Floats scale(Floats x, const Reduced& reduced) {
#ifdef __AVX512F__
  return _mm512_maskz_scalef_ps(0xFFFF, x, reduced.exponent);
#else
  const Ints half = reduced.exponent_bits >> 1;
  return x * power_of_two(half) * power_of_two(reduced.exponent_bits - half);
#endif
}

// Whether any lane is; NaN is not.
bool has_any_below(Floats x, float bound) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(x, broadcast<Floats>(bound), _CMP_LT_OQ) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps(x, broadcast<Floats>(bound), _CMP_LT_OQ)) != 0;
#else
  bool any = false;
  for (int i = 0; i < kNumLanes<Floats>; ++i) {
    any |= x[i] < bound;
  }
  return any;
#endif
}

// Whether any lane is not from `begin` up to `end`; NaN is not.
bool has_any_outside(Floats x, float begin, float end) {
#if defined(__AVX512F__)
  const __mmask16 is_from = _mm512_cmp_ps_mask(x, broadcast<Floats>(begin), _CMP_GE_OQ);
  return _mm512_mask_cmp_ps_mask(is_from, x, broadcast<Floats>(end), _CMP_LT_OQ) != 0xFFFF;
#elif defined(__AVX2__)
  const Floats is_from = _mm256_cmp_ps(x, broadcast<Floats>(begin), _CMP_GE_OQ);
  const Floats is_within = _mm256_and_ps(is_from, _mm256_cmp_ps(x, broadcast<Floats>(end), _CMP_LT_OQ));
  return _mm256_movemask_ps(is_within) != 0xFF;
#else
  bool any = false;
  for (int i = 0; i < kNumLanes<Floats>; ++i) {
    any |= !(x[i] >= begin && x[i] < end);
  }
  return any;
#endif
}

// That of a rest is within 1 / sqrt(2) and sqrt(2).
Floats exp_of_rest(Floats rest) {
  return multiply_add(multiply_add(polynomial(tables::kExp, rest), rest, 1.0F), rest, 1.0F);
}

// Where the result is no normal number, 0 included, it is made as another one, whose last bits are rounded away beside
// a power of two: operations with denormal results may take a hundred times as long.
Floats exp(Floats x) {
  constexpr float kDenormal = -87.34F; // and below: a little less than the logarithm of the least normal number
  constexpr int kAhead = 124;
  constexpr float kRound = 0x1p-2F; // its last bit is that of denormal numbers, times 2^kAhead
  Reduced reduced(at_most(at_least(x, -105.0F), 89.0F));
  Floats result = exp_of_rest(reduced.rest);
  if (__builtin_expect(!has_any_below(x, kDenormal), true)) {
    return scale(result, reduced);
  }
  const Ints is_denormal = x < kDenormal;
  reduced.exponent = is_denormal ? reduced.exponent + static_cast<float>(kAhead) : reduced.exponent;
  reduced.exponent_bits = is_denormal ? reduced.exponent_bits + kAhead : reduced.exponent_bits;
  result = scale(result, reduced);
  const Ints rounded = bits_of(result + kRound) - bits_of(broadcast<Floats>(kRound));
  return is_denormal ? from_bits<Floats>(rounded) : result;
}

Floats expm1(Floats x) {
  const Reduced reduced(at_most(at_least(x, -20.0F), 89.0F));
  const Floats& rest = reduced.rest;
  const Floats of_rest = multiply_add(rest * rest, polynomial(tables::kExp, rest), rest);
  const Floats half = power_of_two(reduced.exponent_bits - 1); // 2^128 would be no number
  const Floats result = multiply_add(half, of_rest, half - 0.5F);
  return abs(x) < kTiny ? x : result + result;
}

// log(2^exponent * (1 + x)), -0.301 <= x <= 0.399
Floats log_of(Floats x, Floats exponent) {
  const Floats rest = multiply_add(x * x, polynomial(tables::kLog, x), exponent * kLog2Low);
  return multiply_add(exponent, kLog2High, x + rest);
}

// Wraps around.
Ints difference(Ints a, Ints b) {
  return reinterpret_cast<Ints>(reinterpret_cast<UnsignedInts>(a) - reinterpret_cast<UnsignedInts>(b));
}

// That of x with a mantissa from 0.699 to 1.398.
Ints exponent_of(Floats x) {
  return difference(bits_of(x), Ints{} + 0x3f330000) >> 23;
}

// What a logarithm is where its argument, here x + 1, is no positive number.
Floats with_edges_of_log(Floats result, Floats x, float zero) {
  result = x < kInfinity ? result : x;
  const Floats edge = x == zero ? broadcast<Floats>(-kInfinity) : broadcast<Floats>(kNaN);
  return x > zero ? result : edge;
}

constexpr float kLeastNormal = std::numeric_limits<float>::min();

// log(2^exponent * mantissa), x being 2^(bits of exponent) * mantissa.
Floats log_of_bits(Floats x, Ints bits_of_exponent, Ints exponent) {
  const Floats mantissa = from_bits<Floats>(difference(bits_of(x), bits_of_exponent << 23));
  return log_of(mantissa - 1.0F, __builtin_convertvector(exponent, Floats));
}

Floats log(Floats x) {
  constexpr float kScale = 0x1p23F;
  if (__builtin_expect(!has_any_outside(x, kLeastNormal, kInfinity), true)) {
    const Ints exponent = exponent_of(x);
    return log_of_bits(x, exponent, exponent);
  }
  const Ints is_denormal = x < kLeastNormal;
  const Floats scaled = is_denormal ? x * kScale : x;
  const Ints exponent = exponent_of(scaled);
  const Floats result = log_of_bits(scaled, exponent, is_denormal ? exponent - 23 : exponent);
  return with_edges_of_log(result, x, 0.0F);
}

// The mantissa is x * 2^-exponent + (2^-exponent - 1), which rounds once, not in 1 + x.
Floats log1p(Floats x) {
  const Ints exponent = exponent_of(x + 1.0F);
  constexpr float kLeast = -0x1.fffffep-1F;
  if (__builtin_expect(!has_any_outside(x, kLeast, 0x1p100F) && !has_any_below(abs(x), kTiny), true)) {
    const Floats power = power_of_two(-exponent);
    return log_of(x * power + (power - 1.0F), __builtin_convertvector(exponent, Floats));
  }
  const Ints half = exponent >> 1; // 2^-128 may be flushed to zero
  const Floats first = power_of_two(-half);
  const Floats second = power_of_two(half - exponent);
  const Floats mantissa = x * first * second + (first * second - 1.0F);
  const Floats result = log_of(mantissa, __builtin_convertvector(exponent, Floats));
  return abs(x) < kTiny ? x : with_edges_of_log(result, x, -1.0F);
}

// An odd function by a table: the row for the centers of intervals, then those of coefficients.
template <size_t kRows>
Floats piecewise(const float (&table)[kRows][16], float scale, float end, Floats x) {
  const Floats size = at_most(abs(x), end);
  const Floats place = multiply_add(size, scale, 0.5F);
  const Ints index = bits_of(place) >> 21;
  const Floats distance = size - look_up(table[0], index);
  Floats slope = look_up(table[kRows - 1], index);
#pragma GCC unroll 16
  for (size_t row = kRows - 2; row > 1; --row) {
    slope = multiply_add(slope, distance, look_up(table[row], index));
  }
  const Floats of_center = place < 0.625F ? size : look_up(table[1], index);
  return with_sign_of(multiply_add(slope, distance, of_center), x);
}

Floats tanh(Floats x) {
  return piecewise(tables::kTanh, tables::kTanhScale, tables::kTanhEnd, x);
}

Floats erf(Floats x) {
  return piecewise(tables::kErf, tables::kErfScale, tables::kErfEnd, x);
}

constexpr float kLargeAngle = 0x1p28F;

// x = angle + quadrants * pi / 2, |angle| <= pi / 4, if |x| < kLargeAngle.
template <typename Angles, typename Quadrants>
struct ReducedAngle {
  Angles angle;
  Quadrants quadrants;
};

// In float64, where multiples of the first two parts of pi / 2 are exact.
ReducedAngle<HalfFloats, HalfInts> reduce_angle(HalfFloats half) {
  constexpr double kRound = 0x1.8p52; // has no bits behind the point
  const Doubles x = __builtin_convertvector(half, Doubles);
  const Doubles shifted = x * 0x1.45f306dc9c883p-1 + kRound;
  const Doubles quadrants = shifted - kRound;
  Doubles rest = x - quadrants * 0x1.921fb6p0;
  rest = rest - quadrants * -0x1.777a5cp-25;
  rest = rest - quadrants * -0x1.ee59d9cceba4p-50;
  return {__builtin_convertvector(rest, HalfFloats), __builtin_convertvector(bits_of(shifted), HalfInts)};
}

template <size_t... kLanes>
ReducedAngle<Floats, Ints> reduce_angle(Floats x, std::index_sequence<kLanes...>) {
  constexpr size_t kHalf = sizeof...(kLanes);
  const auto low = reduce_angle(__builtin_shufflevector(x, x, kLanes...));
  const auto high = reduce_angle(__builtin_shufflevector(x, x, kHalf + kLanes...));
  return {
      __builtin_shufflevector(low.angle, high.angle, kLanes..., kHalf + kLanes...),
      __builtin_shufflevector(low.quadrants, high.quadrants, kLanes..., kHalf + kLanes...)};
}

// The sine of x and a number of quadrants, in which the cosine is one ahead.
Floats small_sine(Floats x, int quadrants_ahead) {
  const auto reduced = reduce_angle(x, std::make_index_sequence<kNumLanes<Floats> / 2>());
  const Floats& angle = reduced.angle;
  const Floats square = angle * angle;
  const Floats sine = multiply_add(angle * square, polynomial(tables::kSin, square), angle);
  const Floats cosine = multiply_add(square, polynomial(tables::kCos, square), 1.0F);
  const Ints quadrant = reduced.quadrants + quadrants_ahead;
  const Floats result = (quadrant & 1) != 0 ? cosine : sine;
  return from_bits<Floats>(bits_of(result) ^ ((quadrant & 2) << 30));
}

// The C library's function for large arguments: in float64, where it is good for all of them.
template <typename Function>
Floats sine(Floats x, int quadrants_ahead, Function if_large) {
  const Ints is_large = abs(x) >= kLargeAngle;
  const Floats result = small_sine(x, quadrants_ahead);
  if (__builtin_expect(has_any_outside(x, -kLargeAngle, kLargeAngle), false)) {
    return is_large ? map_lanes(if_large, x) : result;
  }
  return result;
}

Floats sin(Floats x) {
  const Floats result = sine(x, 0, [](double lane) { return static_cast<float>(std::sin(lane)); });
  return abs(x) < kTiny ? x : result;
}

Floats cos(Floats x) {
  return sine(x, 1, [](double lane) { return static_cast<float>(std::cos(lane)); });
}

// Those of Doubles: Sleef's, which the CPU's kernels use where they do not use MKL's, or the C library's.
#if defined(__AVX512F__)
#define LAZYPLUG_SLEEF(name) Sleef_##name##d8_u10
#elif defined(__AVX2__)
#define LAZYPLUG_SLEEF(name) Sleef_##name##d4_u10
#endif
#ifdef LAZYPLUG_SLEEF
#define LAZYPLUG_FUNCTION(name)     \
  Doubles name(Doubles x) {         \
    return LAZYPLUG_SLEEF(name)(x); \
  }
#else
#define LAZYPLUG_FUNCTION(name)                                       \
  Doubles name(Doubles x) {                                           \
    return map_lanes([](double lane) { return std::name(lane); }, x); \
  }
#endif
LAZYPLUG_FUNCTION(exp)
LAZYPLUG_FUNCTION(expm1)
LAZYPLUG_FUNCTION(log)
LAZYPLUG_FUNCTION(log1p)
LAZYPLUG_FUNCTION(sin)
LAZYPLUG_FUNCTION(cos)
LAZYPLUG_FUNCTION(tanh)
LAZYPLUG_FUNCTION(erf)
#undef LAZYPLUG_FUNCTION
#undef LAZYPLUG_SLEEF

template <typename V>
V lerp(V a, V b, V weight) {
  const auto is_small = abs(weight) < Element<V>(0.5);
  return multiply_add(is_small ? weight : weight - Element<V>(1), b - a, is_small ? a : b);
}

template <typename V>
V maximum(V a, V b) {
  const V larger = a > b ? a : b; // b, if it is NaN
  return a != a ? a : larger;
}

template <typename V>
V minimum(V a, V b) {
  const V smaller = a < b ? a : b;
  return a != a ? a : smaller;
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
