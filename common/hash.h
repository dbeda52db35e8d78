// A fast non-cryptographic 128-bit hash, wide enough that equal hashes are taken to mean equal content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

namespace lazyplug {

struct Hash128 {
  uint64_t lo = 0;
  uint64_t hi = 0;

  friend bool operator==(const Hash128&, const Hash128&) = default;
};

namespace hash_detail {

// Odd random constants with balanced bits; each lane has its own pair.
inline constexpr uint64_t kLoOffset = 0xa0761d6478bd642fULL;
inline constexpr uint64_t kLoFactor = 0xe7037ed1a0b428dbULL;
inline constexpr uint64_t kHiOffset = 0x8ebc6af09c88c6e3ULL;
inline constexpr uint64_t kHiFactor = 0x589965cc75374cc3ULL;

// The 128-bit product folded to 64 bits: every input bit reaches every output bit.
inline uint64_t fold_multiply(uint64_t a, uint64_t b) {
  __extension__ using uint128 = unsigned __int128;
  const uint128 product = static_cast<uint128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

} // namespace hash_detail

// Mixes a word into the hash. Order matters, and zero words count.
inline Hash128 hash_combine(Hash128 hash, uint64_t word) {
  using namespace hash_detail;
  return {fold_multiply(hash.lo ^ word ^ kLoOffset, kLoFactor), fold_multiply((hash.hi + kHiOffset) ^ word, kHiFactor)};
}

inline Hash128 hash_combine(Hash128 hash, Hash128 other) {
  return hash_combine(hash_combine(hash, other.lo), other.hi);
}

// The length is part of the content: {0} and {0, 0} differ.
inline Hash128 hash_words(const int64_t* data, size_t n, Hash128 seed = {}) {
  Hash128 hash = hash_combine(seed, n);
  for (size_t i = 0; i < n; ++i) {
    hash = hash_combine(hash, static_cast<uint64_t>(data[i]));
  }
  return hash;
}

inline Hash128 hash_bytes(const void* data, size_t n, Hash128 seed = {}) {
  Hash128 hash = hash_combine(seed, n);
  const char* bytes = static_cast<const char*>(data);
  for (size_t at = 0; at < n; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, n - at < sizeof(word) ? n - at : sizeof(word));
    hash = hash_combine(hash, word);
  }
  return hash;
}

inline Hash128 hash_bytes(std::string_view text, Hash128 seed = {}) {
  return hash_bytes(text.data(), text.size(), seed);
}

// 32 lower-case digits, the high word first.
inline std::string to_hex(Hash128 hash) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(32, '0');
  for (int digit = 0; digit < 16; ++digit) {
    text[15 - digit] = kDigits[(hash.hi >> (4 * digit)) & 15];
    text[31 - digit] = kDigits[(hash.lo >> (4 * digit)) & 15];
  }
  return text;
}

} // namespace lazyplug

template <>
struct std::hash<lazyplug::Hash128> {
  size_t operator()(const lazyplug::Hash128& hash) const noexcept {
    return hash.lo ^ hash.hi;
  }
};
