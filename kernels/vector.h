// Vectors of the target's width. Compiled within its namespace, with its options, by tile_loops.inc.cpp alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

using Floats [[gnu::vector_size(kVectorBytes)]] = float;
using Doubles [[gnu::vector_size(kVectorBytes)]] = double;
using Ints [[gnu::vector_size(kVectorBytes)]] = int32_t;
using UnsignedInts [[gnu::vector_size(kVectorBytes)]] = uint32_t;
using Longs [[gnu::vector_size(kVectorBytes)]] = int64_t;
using UnsignedLongs [[gnu::vector_size(kVectorBytes)]] = uint64_t;
// As many as there are Doubles.
using HalfFloats [[gnu::vector_size(kVectorBytes / 2)]] = float;
using HalfInts [[gnu::vector_size(kVectorBytes / 2)]] = int32_t;

template <typename T>
struct VectorType {
  using type [[gnu::vector_size(kVectorBytes)]] = T;
};
template <typename T>
using VectorOf = typename VectorType<T>::type;
template <typename V>
using Element = std::remove_reference_t<decltype(std::declval<V&>()[0])>;
// What comparisons make of such vectors: as many integers.
template <typename V>
using Integers = decltype(std::declval<V>() == std::declval<V>());
template <typename V>
constexpr int kNumLanes = sizeof(V) / sizeof(Element<V>);

template <typename V>
V broadcast(Element<V> x) {
  return x - V{}; // -0 as well
}

template <typename V>
V load(const Element<V>* from) {
  V result;
  std::memcpy(&result, from, sizeof(V));
  return result;
}
template <typename V>
void store(V x, Element<V>* to) {
  std::memcpy(to, &x, sizeof(V));
}

template <typename V, typename Function>
V map_lanes(Function function, V x) {
  V result;
  for (int i = 0; i < kNumLanes<V>; ++i) {
    result[i] = function(x[i]);
  }
  return result;
}

// To integers. The numbers are those of the processor's instructions.
enum class Rounding : uint8_t { kNearest = 0, kFloor = 1, kCeil = 2, kTrunc = 3 };

// What GCC does not make of generic code, at least not everywhere.
//
// multiply_add: where the target has no such instruction, the CPU's kernels round twice.
// at_least, at_most: NaN remains NaN, since x is their second operand. So does -0 beside 0.
// look_up: the entry that the four low bits of the index say.
#if defined(__AVX512F__)

inline Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) {
  return _mm512_fmadd_pd(a, b, c);
}
inline Floats sqrt(Floats x) {
  return _mm512_maskz_sqrt_ps(0xFFFF, x);
}
inline Doubles sqrt(Doubles x) {
  return _mm512_maskz_sqrt_pd(0xFF, x);
}
inline Floats at_least(Floats x, Floats bound) {
  return _mm512_maskz_max_ps(0xFFFF, bound, x);
}
inline Doubles at_least(Doubles x, Doubles bound) {
  return _mm512_maskz_max_pd(0xFF, bound, x);
}
inline Floats at_most(Floats x, Floats bound) {
  return _mm512_maskz_min_ps(0xFFFF, bound, x);
}
inline Doubles at_most(Doubles x, Doubles bound) {
  return _mm512_maskz_min_pd(0xFF, bound, x);
}
template <Rounding kRounding>
Floats round_by(Floats x) {
  return _mm512_maskz_roundscale_ps(0xFFFF, x, static_cast<int>(kRounding) | _MM_FROUND_NO_EXC);
}
template <Rounding kRounding>
Doubles round_by(Doubles x) {
  return _mm512_maskz_roundscale_pd(0xFF, x, static_cast<int>(kRounding) | _MM_FROUND_NO_EXC);
}
inline Floats look_up(const float (&table)[16], Ints index) {
  return _mm512_maskz_permutexvar_ps(0xFFFF, reinterpret_cast<__m512i>(index), load<Floats>(table));
}

#elif defined(__AVX2__)

inline Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) {
  return _mm256_fmadd_pd(a, b, c);
}
inline Floats sqrt(Floats x) {
  return _mm256_sqrt_ps(x);
}
inline Doubles sqrt(Doubles x) {
  return _mm256_sqrt_pd(x);
}
inline Floats at_least(Floats x, Floats bound) {
  return _mm256_max_ps(bound, x);
}
inline Doubles at_least(Doubles x, Doubles bound) {
  return _mm256_max_pd(bound, x);
}
inline Floats at_most(Floats x, Floats bound) {
  return _mm256_min_ps(bound, x);
}
inline Doubles at_most(Doubles x, Doubles bound) {
  return _mm256_min_pd(bound, x);
}
template <Rounding kRounding>
Floats round_by(Floats x) {
  return _mm256_round_ps(x, static_cast<int>(kRounding) | _MM_FROUND_NO_EXC);
}
template <Rounding kRounding>
Doubles round_by(Doubles x) {
  return _mm256_round_pd(x, static_cast<int>(kRounding) | _MM_FROUND_NO_EXC);
}
inline Floats look_up(const float (&table)[16], Ints index) {
  const Floats low = _mm256_permutevar8x32_ps(load<Floats>(table), reinterpret_cast<__m256i>(index));
  const Floats high = _mm256_permutevar8x32_ps(load<Floats>(table + 8), reinterpret_cast<__m256i>(index));
  return _mm256_blendv_ps(low, high, reinterpret_cast<__m256>(index << 28)); // by the fourth bit
}

#else

template <typename V>
V multiply_add(V a, V b, V c) {
  return a * b + c;
}
template <typename V>
V sqrt(V x) {
  return map_lanes([](Element<V> lane) { return std::sqrt(lane); }, x);
}
template <typename V>
V at_least(V x, V bound) {
  return bound > x ? bound : x;
}
template <typename V>
V at_most(V x, V bound) {
  return bound < x ? bound : x;
}
template <Rounding kRounding, typename V>
V round_by(V x) {
  return map_lanes(
      [](Element<V> lane) {
        return kRounding == Rounding::kFloor     ? std::floor(lane)
               : kRounding == Rounding::kCeil    ? std::ceil(lane)
               : kRounding == Rounding::kNearest ? std::nearbyint(lane)
                                                 : std::trunc(lane);
      },
      x);
}
inline Floats look_up(const float (&table)[16], Ints index) {
  Floats result;
  for (int i = 0; i < kNumLanes<Floats>; ++i) {
    result[i] = table[index[i] & 15];
  }
  return result;
}

#endif

template <typename V>
V multiply_add(V a, V b, Element<V> c) {
  return multiply_add(a, b, broadcast<V>(c));
}
template <typename V>
V multiply_add(V a, Element<V> b, V c) {
  return multiply_add(a, broadcast<V>(b), c);
}
template <typename V>
V multiply_add(V a, Element<V> b, Element<V> c) {
  return multiply_add(a, broadcast<V>(b), broadcast<V>(c));
}

template <typename V>
Integers<V> bits_of(V x) {
  return reinterpret_cast<Integers<V>>(x);
}
template <typename V>
V from_bits(Integers<V> bits) {
  return reinterpret_cast<V>(bits);
}

template <typename V>
Integers<V> sign_bit(V x) {
  return bits_of(x) & bits_of(broadcast<V>(Element<V>(-0.0)));
}
template <typename V>
V abs(V x) {
  return from_bits<V>(bits_of(x) & ~bits_of(broadcast<V>(Element<V>(-0.0))));
}
// |x|, or what is not negative, with the sign of another.
template <typename V>
V with_sign_of(V x, V other) {
  return from_bits<V>(bits_of(x) | sign_bit(other));
}

template <typename V>
V at_least(V x, Element<V> bound) {
  return at_least(x, broadcast<V>(bound));
}
template <typename V>
V at_most(V x, Element<V> bound) {
  return at_most(x, broadcast<V>(bound));
}

// No more elements than a vector has; the others are those of `rest`.
template <typename V>
V load_part(const Element<V>* from, int64_t n, V rest = V{}) {
  std::memcpy(&rest, from, n * sizeof(Element<V>));
  return rest;
}
template <typename V>
void store_part(V x, Element<V>* to, int64_t n) {
  std::memcpy(to, &x, n * sizeof(Element<V>));
}

// Some lanes that follow each other. Memory is that of lane 0, and is only touched for these.
struct Lanes {
  int8_t first;
  int8_t count;
};

#if defined(__AVX512F__)

inline bool has_any_bit(Ints x) {
  return _mm512_test_epi32_mask(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(x)) != 0;
}
inline __mmask16 mask_of(Lanes lanes) {
  return static_cast<__mmask16>(((1U << lanes.count) - 1) << lanes.first);
}
inline Floats load_lanes(const float* from, Lanes lanes) {
  return _mm512_maskz_loadu_ps(mask_of(lanes), from);
}
inline void store_lanes(Floats x, float* to, Lanes lanes) {
  _mm512_mask_storeu_ps(to, mask_of(lanes), x);
}

template <>
inline Floats load_part(const float* from, int64_t n, Floats rest) {
  return _mm512_mask_loadu_ps(rest, static_cast<__mmask16>((1U << n) - 1), from);
}
template <>
inline void store_part(Floats x, float* to, int64_t n) {
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1U << n) - 1), x);
}

#elif defined(__AVX2__)

inline __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
template <>
inline Floats load_part(const float* from, int64_t n, Floats rest) {
  if (n == 8) {
    return _mm256_loadu_ps(from);
  }
  const __m256i lanes = first_lanes(n);
  return _mm256_blendv_ps(rest, _mm256_maskload_ps(from, lanes), _mm256_castsi256_ps(lanes));
}
// Masked stores take AMD's processors long.
template <>
inline void store_part(Floats x, float* to, int64_t n) {
  if (n == 8) {
    return _mm256_storeu_ps(to, x);
  }
  __m128 rest = _mm256_castps256_ps128(x);
  if ((n & 4) != 0) {
    _mm_storeu_ps(to, rest);
    rest = _mm256_extractf128_ps(x, 1);
    to += 4;
  }
  if ((n & 2) != 0) {
    _mm_storel_pi(reinterpret_cast<__m64*>(to), rest);
    rest = _mm_movehl_ps(rest, rest);
    to += 2;
  }
  if ((n & 1) != 0) {
    _mm_store_ss(to, rest);
  }
}

inline bool has_any_bit(Ints x) {
  return _mm256_testz_si256(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(x)) == 0;
}
inline Floats load_lanes(const float* from, Lanes lanes) {
  if (lanes.count == 8) {
    return _mm256_loadu_ps(from);
  }
  const Ints index = Ints{0, 1, 2, 3, 4, 5, 6, 7} - int32_t{lanes.first};
  return _mm256_maskload_ps(from, reinterpret_cast<__m256i>((index >= 0) & (index < int32_t{lanes.count})));
}
inline void store_lanes(Floats x, float* to, Lanes lanes) {
  if (lanes.first != 0) {
    const Ints index = Ints{0, 1, 2, 3, 4, 5, 6, 7} + int32_t{lanes.first};
    x = _mm256_permutevar8x32_ps(x, reinterpret_cast<__m256i>(index));
  }
  store_part(x, to + lanes.first, lanes.count);
}

#endif

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
