#include "lowering/passes/no_op_copies.h"

#include "test/cpp/lowering/graph_text.h"

namespace lazyplug {
namespace {

const std::string kReluOfData =
    "%0 = device_data(0)  # Float[2, 3] strides=[3, 1]\n"
    "%1 = aten::relu(%0)  # Float[2, 3] strides=[3, 1]\n";

TEST(NoOpCopies, CopiesThatLieAlikeGo) {
  EXPECT_EQ(
      after(
          remove_no_op_copies,
          kReluOfData + "%2 = aten::clone(%1, 0)  # Float[2, 3] strides=[3, 1]\n"
                        "%3 = aten::_to_copy(%2, 6, None, None, None, False, None)  # Float[2, 3] strides=[3, 1]\n"
                        "%4 = aten::tanh(%3)  # Float[2, 3] strides=[3, 1]\n"
                        "return %4, %2\n"),
      kReluOfData +
          "%4 = aten::tanh(%1)  # Float[2, 3] strides=[3, 1]\n"
          "return %4, %1\n");
}

TEST(NoOpCopies, OtherLayoutsDtypesAndViewsStay) {
  const std::string text = kReluOfData +
                           "%2 = aten::clone(%1, 2)  # Float[2, 3] strides=[1, 2]\n"
                           "%3 = aten::_to_copy(%1, 7, None, None, None, False, None)  # Double[2, 3] strides=[3, 1]\n"
                           "%4 = aten::clone(%1[Float[2, 3] strides=[3, 1] neg], 0)  # Float[2, 3] strides=[3, 1]\n"
                           "return %2, %3, %4\n";
  EXPECT_EQ(after(remove_no_op_copies, text), text);
}

TEST(NoOpCopies, TheMemoryOfALeafMayBeLarger) {
  const std::string returned =
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "%1 = aten::clone(%0, None)  # Float[3] strides=[1]\n"
      "return %1\n";
  EXPECT_EQ(after(remove_no_op_copies, returned), returned);
  const std::string written =
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "%1 = aten::relu_(%0)  # Float[3] strides=[1]\n"
      "%2 = aten::clone(%1, None)  # Float[3] strides=[1]\n"
      "%3 = aten::tanh_(%2)  # Float[3] strides=[1]\n"
      "return %3\n";
  EXPECT_EQ(after(remove_no_op_copies, written), written);
  EXPECT_EQ(
      after(
          remove_no_op_copies,
          "%0 = device_data(0)  # Float[3] strides=[1]\n"
          "%1 = aten::clone(%0, None)  # Float[3] strides=[1]\n"
          "%2 = aten::tanh(%1)  # Float[3] strides=[1]\n"
          "return %2\n"),
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "%2 = aten::tanh(%0)  # Float[3] strides=[1]\n"
      "return %2\n")
      << "but who only reads does not mind";
}

TEST(NoOpCopies, WhatIsWrittenBesideItsCopyNeedsIt) {
  const std::string text =
      kReluOfData +
      "%2 = aten::clone(%1, None)  # Float[2, 3] strides=[3, 1]\n"
      "%3 = aten::add_.Tensor(%1, %2[Float[2, 3] strides=[1, 2]], 1)  # Float[2, 3] strides=[3, 1]\n"
      "return %3\n";
  EXPECT_EQ(after(remove_no_op_copies, text), text);
}

TEST(NoOpCopies, AWriteToTheCopyDoesNot) {
  EXPECT_EQ(
      after(
          remove_no_op_copies,
          kReluOfData + "%2 = aten::clone(%1, None)  # Float[2, 3] strides=[3, 1]\n"
                        "%3 = aten::tanh_(%2)  # Float[2, 3] strides=[3, 1]\n"
                        "return %1, %3\n"),
      kReluOfData +
          "%3 = aten::tanh_(%1)  # Float[2, 3] strides=[3, 1]\n"
          "return %1, %3\n")
      << "lazyplug::own copies, or the write becomes pure";
}

} // namespace
} // namespace lazyplug
