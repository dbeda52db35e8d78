#pragma once

#include <ATen/core/ivalue.h>

#include <array>
#include <optional>

#include "common/intra_op_threads.h"
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
// threads, so neither do its results, in a graph or at once.

// How much there is to do, in multiplications, for calls whose tensors are small;
// infinite for others, and for calls that may use threads of their own.
float light_work(const Signature& signature);

// The same of a call that runs at once, whose results are not known yet, if its bits depend on the number of threads
// (ThreadUse). Nothing for others: these compute the same with any number, if they are light.
std::optional<float> work_at_once(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments);

// Up to which work a call is light.
float light_limit(int num_threads);

// Within its scope the calling thread computes a call that runs at once, with as many threads as a graph would.
class ThreadsOfCall {
 public:
  ThreadsOfCall(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments);

 private:
  std::optional<IntraOpThreadsScope> threads_;
};

} // namespace lazyplug
