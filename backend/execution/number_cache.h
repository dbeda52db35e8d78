#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "common/hash.h"
#include "common/lru_cache.h"
#include "lowering/ir/geometry.h"

namespace lazyplug {

// The number in a 0-dim CPU tensor, bit by bit: 0.0 is not -0.0, and each NaN is
// its own.
struct Number {
  // With `prefer_float`, Python's numbers are converted to float32.
  static Number of(const c10::TensorImpl& tensor, bool prefer_float);
  // A CPU tensor that holds it, in memory that is not the device's.
  at::Tensor make_tensor() const;
  const LayoutPtr& layout() const;
  // Whether the tensor, which has the number's dtype, holds it.
  bool is_in(const at::Tensor& tensor) const;

  friend bool operator==(const Number&, const Number&) = default;

  std::array<uint64_t, 2> bits{}; // zero behind the last byte
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  bool wrapped = false; // promotes types as a Python number does
};

struct NumberHash {
  using is_transparent = void;
  size_t operator()(const Number& number) const noexcept {
    const auto kind = static_cast<uint64_t>(number.dtype) << 1 | static_cast<uint64_t>(number.wrapped);
    return hash_combine(hash_combine(Hash128{kind, 0}, number.bits[0]), number.bits[1]).lo;
  }
};

// The numbers that a device's traces have read lately, as the leaves that hold
// them: a Python number among the operands, or a 0-dim CPU tensor. So a number
// that is used again is not copied again. Bounded by the flag
// device_data_cache_size.
//
// Nobody writes a cached number, because the cache holds a reference:
// `lazyplug::own` (lowering/calls/runtime_ops.h) then copies what an op is to write, and
// a job copies a result that is the number itself. What has left the cache may
// be donated like any leaf, for nobody can get hold of it again.
//
// Locking: free of the device's lock, which find() may be called with. Not so
// add() and clear(): what they let go of may ask for Python's lock.
class NumberCache {
 public:
  // The leaf that holds the number, or an undefined tensor.
  at::Tensor find(const Number& number);
  void add(const Number& number, at::Tensor leaf);
  void clear() {
    leaves_.clear();
  }
  size_t size() const {
    return leaves_.size();
  }

 private:
  LruCache<Number, at::Tensor, NumberHash> leaves_{1};
};

} // namespace lazyplug
