#include "lowering/passes/common_subexpressions.h"

#include "test/cpp/lowering/graph_text.h"

namespace lazyplug {
namespace {

const std::string kExpOfData =
    "%0 = device_data(0)  # Float[2, 3] strides=[3, 1]\n"
    "%1 = aten::exp(%0)  # Float[2, 3] strides=[3, 1]\n";

TEST(CommonSubexpressions, EqualCallsAreOne) {
  EXPECT_EQ(
      after(
          merge_common_subexpressions,
          kExpOfData + "%2 = aten::exp(%0)  # Float[2, 3] strides=[3, 1]\n"
                       "%3 = aten::mul.Tensor(%1, %2)  # Float[2, 3] strides=[3, 1]\n"
                       "%4 = aten::sort(%1, -1, False)  # Float[2, 3] strides=[3, 1]; Long[2, 3] strides=[3, 1]\n"
                       "%5 = aten::sort(%2, -1, False)  # Float[2, 3] strides=[3, 1]; Long[2, 3] strides=[3, 1]\n"
                       "return %3, %4.0, %5.1\n"),
      kExpOfData +
          "%3 = aten::mul.Tensor(%1, %1)  # Float[2, 3] strides=[3, 1]\n"
          "%4 = aten::sort(%1, -1, False)  # Float[2, 3] strides=[3, 1]; Long[2, 3] strides=[3, 1]\n"
          "return %3, %4.0, %4.1\n");
}

TEST(CommonSubexpressions, OtherConstantsViewsAndInputsAreNot) {
  const std::string text = kExpOfData +
                           "%2 = aten::exp(%0[Float[3] strides=[1]])  # Float[3] strides=[1]\n"
                           "%3 = aten::exp(%0[Float[3] strides=[1] offset=3])  # Float[3] strides=[1]\n"
                           "%8 = aten::exp(%0[Float[3] strides=[1] at=3])  # Float[3] strides=[1]\n"
                           "%4 = aten::softmax.int(%0, 0, None)  # Float[2, 3] strides=[3, 1]\n"
                           "%5 = aten::softmax.int(%0, 1, None)  # Float[2, 3] strides=[3, 1]\n"
                           "%6 = aten::add.Tensor(%0, %1, 2)  # Float[2, 3] strides=[3, 1]\n"
                           "%7 = aten::add.Tensor(%0, %1, 2)  # Float[2, 3] strides=[3, 1]\n"
                           "return %2, %3, %8, %4, %5, %6, %7\n";
  EXPECT_EQ(after(merge_common_subexpressions, text), text);
}

TEST(CommonSubexpressions, NorRandomCallsWritesAndFreshMemory) {
  const std::string text = kExpOfData +
                           "%2 = aten::bernoulli(%0, seed=3)  # Float[2, 3] strides=[3, 1]\n"
                           "%3 = aten::bernoulli(%0, seed=3)  # Float[2, 3] strides=[3, 1]\n"
                           "%4 = aten::empty_like(%0, None, None, None, None, None)  # Float[2, 3] strides=[3, 1]\n"
                           "%5 = aten::empty_like(%0, None, None, None, None, None)  # Float[2, 3] strides=[3, 1]\n"
                           "%6 = aten::relu_(%4)  # Float[2, 3] strides=[3, 1]\n"
                           "%7 = aten::relu_(%5)  # Float[2, 3] strides=[3, 1]\n"
                           "return %2, %3, %6, %7\n";
  EXPECT_EQ(after(merge_common_subexpressions, text), text);
}

TEST(CommonSubexpressions, OneThatIsWrittenBesideTheOtherStays) {
  const std::string text =
      kExpOfData +
      "%2 = aten::exp(%0)  # Float[2, 3] strides=[3, 1]\n"
      "%3 = aten::add_.Tensor(%1, %2[Float[2, 3] strides=[1, 2]], 1)  # Float[2, 3] strides=[3, 1]\n"
      "return %3\n";
  EXPECT_EQ(after(merge_common_subexpressions, text), text);
}

} // namespace
} // namespace lazyplug
