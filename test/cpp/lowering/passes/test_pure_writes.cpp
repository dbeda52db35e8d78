#include "lowering/passes/pure_writes.h"

#include "test/cpp/lowering/graph_text.h"

namespace lazyplug {
namespace {

const std::string kExpToBeWritten =
    "%0 = device_data(0)  # Float[2, 3] strides=[3, 1]\n"
    "%1 = aten::exp(%0)  # Float[2, 3] strides=[3, 1]\n";

TEST(PureWrites, AWriteToWhatIsNeededLaterIsPure) {
  EXPECT_EQ(
      after(
          make_writes_pure,
          kExpToBeWritten + "%2 = aten::add_.Tensor(%1, %0, 0.5)  # Float[2, 3] strides=[3, 1]\n"
                            "%3 = aten::relu_(%0)  # Float[2, 3] strides=[3, 1]\n"
                            "%4 = aten::tanh(%1)  # Float[2, 3] strides=[3, 1]\n"
                            "return %2, %3, %4, %0\n"),
      kExpToBeWritten +
          "%2 = aten::add.Tensor(%1, %0, 0.5)  # Float[2, 3] strides=[3, 1]\n"
          "%3 = aten::relu(%0)  # Float[2, 3] strides=[3, 1]\n"
          "%4 = aten::tanh(%1)  # Float[2, 3] strides=[3, 1]\n"
          "return %2, %3, %4, %0\n");
}

TEST(PureWrites, OthersWriteInPlace) {
  const std::string text = kExpToBeWritten +
                           "%2 = aten::tanh(%1)  # Float[2, 3] strides=[3, 1]\n"
                           "%3 = aten::relu_(%1)  # Float[2, 3] strides=[3, 1]\n"
                           "return %2, %3\n";
  EXPECT_EQ(after(make_writes_pure, text), text);
}

TEST(PureWrites, WhatPromotesOrLiesOtherwiseStays) {
  const std::string text = kExpToBeWritten +
                           "%2 = device_data(1)  # Double[] strides=[]\n"
                           "%3 = device_data(2)  # Float[3] strides=[1]\n"
                           "%4 = aten::mul_.Tensor(%1, %2)  # Float[2, 3] strides=[3, 1]\n"
                           "%5 = aten::mul_.Tensor(%1, %3)  # Float[2, 3] strides=[3, 1]\n"
                           "%6 = aten::relu_(%1[Float[2] strides=[3]])  # Float[2, 3] strides=[3, 1]\n"
                           "%7 = aten::sort(%0, -1, False)  # Float[2, 3] strides=[3, 1]; Long[2, 3] strides=[3, 1]\n"
                           "%8 = aten::abs_(%7.1)  # Long[2, 3] strides=[3, 1]\n"
                           "%9 = aten::erfinv_(%1)  # Float[2, 3] strides=[3, 1]\n"
                           "return %1, %4, %5, %6, %7.1, %8, %9\n";
  EXPECT_EQ(after(make_writes_pure, text), text);
}

TEST(PureWrites, WhatRoundsItsNumberStays) {
  const std::string text =
      "%0 = device_data(0)  # BFloat16[2, 3] strides=[3, 1]\n"
      "%1 = aten::exp(%0)  # BFloat16[2, 3] strides=[3, 1]\n"
      "%2 = aten::mul_.Scalar(%1, 1.5)  # BFloat16[2, 3] strides=[3, 1]\n"
      "return %1, %2\n";
  EXPECT_EQ(after(make_writes_pure, text), text);
}

TEST(PureWrites, TheResultOfAPureCallMayBeWrittenAgain) {
  EXPECT_EQ(
      after(
          make_writes_pure,
          kExpToBeWritten + "%2 = aten::relu_(%1)  # Float[2, 3] strides=[3, 1]\n"
                            "%3 = aten::tanh_(%2)  # Float[2, 3] strides=[3, 1]\n"
                            "return %1, %3\n"),
      kExpToBeWritten +
          "%2 = aten::relu(%1)  # Float[2, 3] strides=[3, 1]\n"
          "%3 = aten::tanh_(%2)  # Float[2, 3] strides=[3, 1]\n"
          "return %1, %3\n");
}

} // namespace
} // namespace lazyplug
