#include "common/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <unordered_set>
#include <vector>

namespace lazyplug {
namespace {

Hash128 hash_of(const std::vector<int64_t>& words) {
  return hash_words(words.data(), words.size());
}

size_t count_distinct(std::vector<uint64_t> values) {
  std::sort(values.begin(), values.end());
  return std::unique(values.begin(), values.end()) - values.begin();
}

TEST(Hash, IsAFunctionOfTheContent) {
  EXPECT_EQ(hash_of({1, 2, 3}), hash_of({1, 2, 3}));
  EXPECT_NE(hash_of({1, 2, 3}), hash_of({3, 2, 1}));
  EXPECT_EQ(hash_bytes("relu"), hash_bytes(std::string("relu")));
}

TEST(Hash, LengthAndZerosCount) {
  EXPECT_NE(hash_of({}), Hash128());
  EXPECT_NE(hash_of({}), hash_of({0}));
  EXPECT_NE(hash_of({0}), hash_of({0, 0}));
  EXPECT_NE(hash_bytes(std::string_view("a", 1)), hash_bytes(std::string_view("a\0", 2)));
  EXPECT_NE(hash_combine(Hash128(), 0), Hash128());
}

TEST(Hash, SeedChangesBothLanes) {
  const std::vector<int64_t> words = {1, 2};
  const Hash128 seeded = hash_words(words.data(), words.size(), Hash128{1, 1});
  EXPECT_NE(seeded.lo, hash_of(words).lo);
  EXPECT_NE(seeded.hi, hash_of(words).hi);
}

TEST(Hash, CombiningHashesIsOrdered) {
  const Hash128 a = hash_bytes("a");
  const Hash128 b = hash_bytes("b");
  EXPECT_NE(hash_combine(a, b), hash_combine(b, a));
  EXPECT_NE(hash_combine(a, b), a);
}

TEST(Hash, EveryByteOfATailCounts) {
  for (size_t size = 1; size <= 20; ++size) {
    std::string text(size, 'x');
    const Hash128 before = hash_bytes(text);
    text.back() = 'y';
    EXPECT_NE(hash_bytes(text), before) << size;
  }
}

// Shapes are small numbers in few places: the case that weak hashes fail.
TEST(Hash, NeitherLaneCollidesOnSmallNumbers) {
  std::vector<uint64_t> lo;
  std::vector<uint64_t> hi;
  for (int64_t i = 0; i < 100 * 100 * 100; ++i) {
    const Hash128 hash = hash_of({i / 10000, i / 100 % 100, i % 100});
    lo.push_back(hash.lo);
    hi.push_back(hash.hi);
  }
  EXPECT_EQ(count_distinct(lo), lo.size());
  EXPECT_EQ(count_distinct(hi), hi.size());
}

TEST(Hash, NeitherLaneCollidesOnSingleBits) {
  std::vector<uint64_t> lo;
  std::vector<uint64_t> hi;
  for (int a = 0; a < 64 * 8; ++a) {
    for (int b = 0; b < a; ++b) {
      std::vector<int64_t> words(8);
      words[a / 64] ^= static_cast<int64_t>(uint64_t{1} << (a % 64));
      words[b / 64] ^= static_cast<int64_t>(uint64_t{1} << (b % 64));
      lo.push_back(hash_of(words).lo);
      hi.push_back(hash_of(words).hi);
    }
  }
  EXPECT_EQ(count_distinct(lo), lo.size());
  EXPECT_EQ(count_distinct(hi), hi.size());
}

// Flipping any input bit flips half of the output bits on average, once another word follows.
TEST(Hash, Avalanche) {
  std::mt19937_64 random(1);
  constexpr int kRounds = 200;
  for (int bit = 0; bit < 64; ++bit) {
    int flipped = 0;
    for (int round = 0; round < kRounds; ++round) {
      const auto word = static_cast<int64_t>(random());
      const auto other = static_cast<int64_t>(static_cast<uint64_t>(word) ^ (uint64_t{1} << bit));
      const Hash128 a = hash_of({word, 5});
      const Hash128 b = hash_of({other, 5});
      flipped += std::popcount(a.lo ^ b.lo) + std::popcount(a.hi ^ b.hi);
    }
    EXPECT_NEAR(static_cast<double>(flipped) / kRounds, 64, 4) << "bit " << bit;
  }
}

TEST(Hash, LanesAreIndependent) {
  int agreeing_bits = 0;
  constexpr int kRounds = 1000;
  for (int64_t i = 0; i < kRounds; ++i) {
    const Hash128 hash = hash_of({i});
    agreeing_bits += std::popcount(~(hash.lo ^ hash.hi));
  }
  EXPECT_NEAR(static_cast<double>(agreeing_bits) / kRounds, 32, 1);
}

TEST(Hash, HexHasTheHighWordFirst) {
  EXPECT_EQ(to_hex({0x1, 0xabcdef0123456789}), "abcdef01234567890000000000000001");
}

TEST(Hash, WorksAsAKey) {
  const std::unordered_set<Hash128> set = {hash_bytes("a"), hash_bytes("b"), hash_bytes("a")};
  EXPECT_EQ(set.size(), 2);
}

} // namespace
} // namespace lazyplug
