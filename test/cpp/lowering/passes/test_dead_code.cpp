#include "lowering/passes/dead_code.h"

#include "test/cpp/lowering/graph_text.h"

namespace lazyplug {
namespace {

TEST(DeadCode, WhatNoRootNeedsGoes) {
  EXPECT_EQ(
      after(
          remove_dead_code,
          "%0 = device_data(0)  # Float[3] strides=[1]\n"
          "%1 = empty()  # Float[3] strides=[1]\n"
          "%2 = aten::relu(%0)  # Float[3] strides=[1]\n"
          "%3 = aten::tanh(%2)  # Float[3] strides=[1]\n"
          "%4 = aten::exp(%2)  # Float[3] strides=[1]\n"
          "return %3\n"),
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "%2 = aten::relu(%0)  # Float[3] strides=[1]\n"
      "%3 = aten::tanh(%2)  # Float[3] strides=[1]\n"
      "return %3\n");
}

TEST(DeadCode, WritesToWhatNobodyReadsGo) {
  EXPECT_EQ(
      after(
          remove_dead_code,
          "%0 = device_data(0)  # Float[3] strides=[1]\n"
          "%1 = aten::relu(%0)  # Float[3] strides=[1]\n"
          "%2 = aten::add_.Tensor(%1, %0, 1)  # Float[3] strides=[1]\n"
          "return %0\n"),
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "return %0\n");
}

TEST(DeadCode, OneResultOfSeveralIsEnough) {
  const std::string text =
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "%1 = aten::sort(%0, -1, False)  # Float[3] strides=[1]; Long[3] strides=[1]\n"
      "return %1.1\n";
  EXPECT_EQ(after(remove_dead_code, text), text);
}

} // namespace
} // namespace lazyplug
