// What tests of computations share: a small trace, and ops that fail.
#pragma once

#include "lowering/computation.h"
#include "test/cpp/lowering/programs.h"
#include "test/cpp/lowering/test_ops.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace lazyplug {

inline std::string message(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& caught) {
    return caught.what_without_backtrace();
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

// A trace with a leaf of two floats.
template <typename Base>
class PairTest : public Base {
 protected:
  void SetUp() override {
    Watched::reset();
  }

  static at::Tensor fresh_pair() {
    return at::tensor({-1.F, 2.F});
  }

  const Geometry kPair = floats({2});
  Trace trace;
  const Value a = trace.add_device_data(at::Tensor(), kPair);
};

} // namespace lazyplug
