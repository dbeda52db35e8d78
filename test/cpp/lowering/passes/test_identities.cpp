#include "lowering/passes/identities.h"

#include "test/cpp/lowering/graph_text.h"

namespace lazyplug {
namespace {

const std::string kUsesOfTanh =
    "%0 = device_data(0)  # Float[2, 3] strides=[3, 1]\n"
    "%1 = aten::tanh(%0)  # Float[2, 3] strides=[3, 1]\n"
    "%2 = aten::neg(%1)  # Float[2, 3] strides=[3, 1]\n"
    "%3 = aten::relu(%1)  # Float[2, 3] strides=[3, 1]\n";

TEST(Identities, TwoCallsThatUndoEachOther) {
  EXPECT_EQ(
      after(
          remove_identities,
          kUsesOfTanh + "%4 = aten::neg(%2)  # Float[2, 3] strides=[3, 1]\n"
                        "%5 = aten::exp(%4)  # Float[2, 3] strides=[3, 1]\n"
                        "return %5\n"),
      kUsesOfTanh +
          "%5 = aten::exp(%1)  # Float[2, 3] strides=[3, 1]\n"
          "return %5\n");
}

TEST(Identities, OneThatDoesNoMoreThanTheLast) {
  EXPECT_EQ(
      after(
          remove_identities,
          kUsesOfTanh + "%4 = aten::relu(%3)  # Float[2, 3] strides=[3, 1]\n"
                        "%5 = aten::relu(%4)  # Float[2, 3] strides=[3, 1]\n"
                        "return %5\n"),
      kUsesOfTanh + "return %3\n");
}

TEST(Identities, OtherOpsViewsAndLayoutsStay) {
  const std::string text = kUsesOfTanh +
                           "%4 = aten::relu(%2)  # Float[2, 3] strides=[3, 1]\n"
                           "%5 = aten::neg(%2[Float[2] strides=[3]])  # Float[2] strides=[1]\n"
                           "%6 = aten::relu(%3)  # Float[2, 3] strides=[1, 2]\n"
                           "%7 = aten::tanh(%1)  # Float[2, 3] strides=[3, 1]\n"
                           "return %4, %5, %6, %7\n";
  EXPECT_EQ(after(remove_identities, text), text);
}

} // namespace
} // namespace lazyplug
