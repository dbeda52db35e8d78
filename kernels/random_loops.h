// Random numbers in vectors. Compiled within each target's namespace, as kernels/vector.h is.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/random_fill.h"
#include "kernels/tile_loops.h"
#include "kernels/vector_math.h"

namespace lazyplug::kernels::LAZYPLUG_TARGET {
namespace {

// A block has the four words of each of 16 counters: the first ones, then the second ones, and so on. So the order does
// not depend on how wide vectors are.
constexpr int kCounters = kRandomBlock / 4;

struct Product {
  UnsignedInts low;
  UnsignedInts high;
};

// The high halves of the products of every other lane, from the first one on, in the low halves of 64 bits.
#if defined(__AVX512F__)
inline UnsignedLongs high_halves(UnsignedLongs a, uint32_t factor) {
  constexpr __mmask8 kAll = 0xFF; // GCC warns of the intrinsic without a mask
  const __m512i product = _mm512_maskz_mul_epu32(kAll, reinterpret_cast<__m512i>(a), _mm512_set1_epi64(factor));
  return reinterpret_cast<UnsignedLongs>(product) >> 32;
}
#elif defined(__AVX2__)
inline UnsignedLongs high_halves(UnsignedLongs a, uint32_t factor) {
  const __m256i product = _mm256_mul_epu32(reinterpret_cast<__m256i>(a), _mm256_set1_epi64x(factor));
  return reinterpret_cast<UnsignedLongs>(product) >> 32;
}
#else
inline UnsignedLongs high_halves(UnsignedLongs a, uint32_t factor) {
  return ((a & UINT32_MAX) * factor) >> 32;
}
#endif

Product multiply(UnsignedInts a, uint32_t factor) {
  const auto pairs = reinterpret_cast<UnsignedLongs>(a);
  const UnsignedLongs even = high_halves(pairs, factor);
  const UnsignedLongs odd = high_halves(pairs >> 32, factor);
  return {a * factor, reinterpret_cast<UnsignedInts>(even | (odd << 32))};
}

void random_words(uint64_t seed, uint64_t block, uint32_t* out) {
  constexpr uint32_t kFactors[] = {0xD2511F53, 0xCD9E8D57};
  constexpr uint32_t kSteps[] = {0x9E3779B9, 0xBB67AE85}; // of the key
  constexpr int kRounds = 10;
  constexpr uint32_t kLanes[kCounters] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const uint64_t first_counter = block * kCounters;
  for (int first = 0; first < kCounters; first += kNumLanes<UnsignedInts>) {
    UnsignedInts x[4] = {load<UnsignedInts>(kLanes + first)};
    x[0] += static_cast<uint32_t>(first_counter); // a multiple of 16, so nothing is carried
    x[1] += static_cast<uint32_t>(first_counter >> 32);
    uint32_t key[] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    for (int round = 0; round < kRounds; ++round) {
      const Product a = multiply(x[0], kFactors[0]);
      const Product b = multiply(x[2], kFactors[1]);
      x[0] = b.high ^ x[1] ^ key[0];
      x[2] = a.high ^ x[3] ^ key[1];
      x[1] = b.low;
      x[3] = a.low;
      key[0] += kSteps[0];
      key[1] += kSteps[1];
    }
    for (int word = 0; word < 4; ++word) {
      store(x[word], out + word * kCounters + first);
    }
  }
}

// From a up to b, which is none of them, though the sum may be rounded up to it.
void uniform_block(const uint32_t* words, float a, float b, float* out) {
  constexpr int kUnused = 8;
  const float last = a < b ? std::nextafter(b, a) : b;
  for (int i = 0; i < kRandomBlock; ++i) {
    const float number = static_cast<float>(words[i] >> kUnused) * 0x1p-24F * (b - a) + a;
    out[i] = number < last ? number : last;
  }
}

// Of an angle in units of 2^-32 turns.
void sine_and_cosine(UnsignedInts turns, Floats& sine, Floats& cosine) {
  constexpr int kQuadrantBits = 30;
  const UnsignedInts quadrant = (turns + (1U << (kQuadrantBits - 1))) >> kQuadrantBits; // the nearest
  const Ints rest = reinterpret_cast<Ints>(turns - (quadrant << kQuadrantBits));
  const Floats angle = __builtin_convertvector(rest, Floats) * 0x1.921fb6p-30F; // pi / 2 * 2^-30
  const Floats square = angle * angle;
  const Floats of_rest = multiply_add(angle * square, polynomial(tables::kSin, square), angle);
  const Floats ahead = multiply_add(square, polynomial(tables::kCos, square), 1.0F);
  const Ints is_odd = reinterpret_cast<Ints>((quadrant & 1) != 0);
  const auto with_sign = [](Floats x, UnsignedInts is_negative) {
    return from_bits<Floats>(bits_of(x) ^ reinterpret_cast<Ints>(is_negative << 31));
  };
  sine = with_sign(is_odd ? ahead : of_rest, (quadrant >> 1) & 1);
  cosine = with_sign(is_odd ? of_rest : ahead, ((quadrant + 1) >> 1) & 1);
}

void normal_block(const uint32_t* words, float mean, float deviation, float* out) {
  for (int pair = 0; pair < kRandomBlock; pair += 2 * kCounters) {
    for (int i = pair; i < pair + kCounters; i += kNumLanes<Floats>) {
      // Not 0; the least is 2^-33, so that nothing is further than 6.8 deviations away.
      const Floats uniform = __builtin_convertvector(load<UnsignedInts>(words + i), Floats) * 0x1p-32F + 0x1p-33F;
      const Floats radius = sqrt(at_least(log(uniform) * -2.0F, 0.0F)) * deviation;
      Floats sine;
      Floats cosine;
      sine_and_cosine(load<UnsignedInts>(words + i + kCounters), sine, cosine);
      store(radius * cosine + mean, out + i);
      store(radius * sine + mean, out + i + kCounters);
    }
  }
}

// Words below it are ones.
uint64_t bernoulli_bound(double probability) {
  return static_cast<uint64_t>(probability * 0x1p32 + 0.5);
}

template <typename T>
void bernoulli_block(const uint32_t* words, uint64_t bound, T* out) {
  if (bound > UINT32_MAX) {
    std::fill_n(out, kRandomBlock, T(1));
    return;
  }
  const auto narrow = static_cast<uint32_t>(bound);
  for (int i = 0; i < kRandomBlock; ++i) {
    out[i] = static_cast<T>(words[i] < narrow);
  }
}

template <typename T, typename Fill>
void fill_blocks(uint64_t seed, int64_t begin, int64_t end, void* out, const Fill& fill) {
  T* to = static_cast<T*>(out);
  for (int64_t block = begin; block < end; ++block, to += kRandomBlock) {
    alignas(kVectorBytes) uint32_t words[kRandomBlock];
    random_words(seed, block, words);
    fill(words, to);
  }
}

template <typename T>
void fill_bernoulli(const RandomFill& fill, int64_t begin, int64_t end, void* out) {
  const uint64_t bound = bernoulli_bound(fill.a);
  fill_blocks<T>(fill.seed, begin, end, out, [&](const uint32_t* words, T* to) { bernoulli_block(words, bound, to); });
}

// As many words stand for each number, but for one (Lemire: Fast random integer generation in an interval; 2019).
void fill_integers(const RandomFill& fill, int64_t begin, int64_t end, void* out) {
  const auto first = static_cast<int64_t>(fill.a);
  const auto count = static_cast<uint64_t>(fill.b - fill.a);
  fill_blocks<int64_t>(fill.seed, begin, end, out, [&](const uint32_t* words, int64_t* to) {
    for (int i = 0; i < kRandomBlock; ++i) {
      to[i] = first + static_cast<int64_t>((words[i] * count) >> 32);
    }
  });
}

void fill_random(const RandomFill& fill, int64_t begin, int64_t end, void* out) {
  const auto a = static_cast<float>(fill.a);
  const auto b = static_cast<float>(fill.b);
  switch (fill.kind) {
    case RandomFill::Kind::kBernoulli:
      return fill_bernoulli<float>(fill, begin, end, out);
    case RandomFill::Kind::kUniform:
      return fill_blocks<float>(fill.seed, begin, end, out, [&](const uint32_t* words, float* to) {
        uniform_block(words, a, b, to);
      });
    case RandomFill::Kind::kNormal:
      return fill_blocks<float>(fill.seed, begin, end, out, [&](const uint32_t* words, float* to) {
        normal_block(words, a, b, to);
      });
    case RandomFill::Kind::kIntegers:
      return; // of other dtypes
  }
}

} // namespace
} // namespace lazyplug::kernels::LAZYPLUG_TARGET
