#pragma once

#include <array>

#include "lowering/ir/signature.h"

namespace lazyplug {

// The three largest of some tensors, by their numbers of elements. Those of a product of matrices of M x K and K x N
// have MK, KN and MN: the square root of what these multiply to is the number of its multiplications. A guess for
// everything else.
class ThreeLargest {
 public:
  void insert(double num_elements);
  double largest() const {
    return sizes_[0];
  }
  double multiplications() const;

 private:
  std::array<double, 3> sizes_{1, 1, 1}; // descending
};

// A *light* call is computed by one thread, however many there may be: its
// tensors are so small that PyTorch's own loops do not divide them, or that to
// wake other threads costs as much as they save. So a light call never has a
// pool of threads at work, and may be computed beside another thread that has
// one. Whether a call is light depends on nothing but the call and the number of
// threads, so neither do its results.

// How much there is to do, in multiplications, for calls whose tensors are small;
// infinite for others, and for calls whose results depend on the number of
// threads, or that may use threads of their own.
float light_work(const Signature& signature);

// Up to which work a call is light.
float light_limit(int num_threads);

} // namespace lazyplug
