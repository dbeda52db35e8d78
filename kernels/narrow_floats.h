// Floats of 16 bits in memory, which programs compute in float32. Compiled for each target, by tile_loops.inc.cpp
// alone.
#pragma once

#include <bit>

#include "kernels/vector.h"

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
template <typename T>
constexpr bool kIsNarrow = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// As many as there are Floats.
using Words [[gnu::vector_size(kVectorBytes / 2)]] = uint16_t;

// The upper half of a float32.
inline Floats widen(Words words, BFloat16) {
  return reinterpret_cast<Floats>(__builtin_convertvector(words, UnsignedInts) << 16);
}
// What it has is kept as it is, also a NaN's bits: it may have been copied.
inline Words narrow(Floats x, BFloat16) {
  const auto bits = reinterpret_cast<UnsignedInts>(x);
  const UnsignedInts rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const auto is_other_nan = (x != x) & ((rounded << 16) != bits);
  return __builtin_convertvector(is_other_nan ? broadcast<UnsignedInts>(0x7FC0) : rounded, Words);
}

#ifdef __F16C__

inline Floats widen(Words words, Half) {
#ifdef __AVX512F__
  return _mm512_maskz_cvtph_ps(0xFFFF, reinterpret_cast<__m256i>(words));
#else
  return _mm256_cvtph_ps(reinterpret_cast<__m128i>(words));
#endif
}
inline Words narrow(Floats x, Half) {
#ifdef __AVX512F__
  return reinterpret_cast<Words>(_mm512_maskz_cvtps_ph(0xFFFF, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  return reinterpret_cast<Words>(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#endif
}

#else

// Exponents are 112 less there. Those that are 0, or all ones, stand for other numbers.
inline Floats widen(Words words, Half) {
  const UnsignedInts all = __builtin_convertvector(words, UnsignedInts);
  const UnsignedInts magnitude = (all & 0x7FFF) << 13;
  const UnsignedInts exponent = magnitude & (0x1FU << 23);
  const UnsignedInts normal = magnitude + (112U << 23);
  const UnsignedInts infinite = normal + (112U << 23);
  const auto subnormal = reinterpret_cast<UnsignedInts>(
      reinterpret_cast<Floats>(normal + (1U << 23)) - broadcast<Floats>(std::bit_cast<float>(113U << 23)));
  const UnsignedInts result = exponent == 0 ? subnormal : exponent == (0x1FU << 23) ? infinite : normal;
  return reinterpret_cast<Floats>(result | ((all & 0x8000) << 16));
}
inline Words narrow(Floats x, Half) {
  const auto bits = reinterpret_cast<UnsignedInts>(x);
  const UnsignedInts magnitude = bits & 0x7FFFFFFF;
  // The addition rounds: what is left of 0.5 are the bits of a subnormal number.
  const auto half = broadcast<UnsignedInts>(0x3F000000);
  const UnsignedInts subnormal =
      reinterpret_cast<UnsignedInts>(reinterpret_cast<Floats>(magnitude) + reinterpret_cast<Floats>(half)) - half;
  const UnsignedInts normal = (magnitude - (112U << 23) + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  const UnsignedInts large = magnitude > 0x7F800000 ? broadcast<UnsignedInts>(0x7E00) : broadcast<UnsignedInts>(0x7C00);
  const UnsignedInts result = magnitude >= 0x47800000 ? large : magnitude < 0x38800000 ? subnormal : normal;
  return __builtin_convertvector(result | ((bits >> 16) & 0x8000), Words);
}

#endif

// The nearest number that the dtype has.
template <typename Narrow>
Floats to_narrow(Floats x) {
  return widen(narrow(x, Narrow{}), Narrow{});
}
template <typename Narrow>
Doubles to_narrow(Doubles x) {
  return x; // no program asks for it
}

template <typename Narrow>
float widen(Narrow x) {
  Words words{};
  words[0] = x.bits;
  return widen(words, x)[0];
}

template <typename Narrow>
void load_narrow(int64_t n, float* out, const Narrow* from) {
  constexpr int64_t kLanes = kNumLanes<Floats>;
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    Words words{};
    if (count == kLanes) {
      std::memcpy(&words, from + i, sizeof(Words));
      store(widen(words, Narrow{}), out + i);
    } else {
      std::memcpy(&words, from + i, count * sizeof(Narrow));
      store_part(widen(words, Narrow{}), out + i, count);
    }
  }
}

template <typename Narrow>
void store_narrow(int64_t n, void* to, const float* from) {
  constexpr int64_t kLanes = kNumLanes<Floats>;
  auto* out = static_cast<Narrow*>(to);
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    const Words words = narrow(count == kLanes ? load<Floats>(from + i) : load_part<Floats>(from + i, count), Narrow{});
    if (count == kLanes) {
      std::memcpy(out + i, &words, sizeof(Words));
    } else {
      std::memcpy(out + i, &words, count * sizeof(Narrow));
    }
  }
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
