#include "lowering/fusion/schedule.h"

#include "test/cpp/lowering/graph_text.h"

namespace lazyplug {
namespace {

const std::string kTwoMatrices =
    "%0 = device_data(0)  # Float[4, 4] strides=[4, 1]\n"
    "%1 = device_data(1)  # Float[4, 4] strides=[4, 1]\n";

// "3 (4 5)": the nodes in order, groups in parentheses.
std::string schedule(const std::string& text, Grouping grouping = Grouping::kSeveral) {
  Graph graph = parse(kTwoMatrices + text);
  std::string result;
  for (const Step& step : make_schedule(graph, grouping)) {
    result += result.empty() ? "" : " ";
    if (step.node) {
      result += std::to_string(step.node->id());
      continue;
    }
    std::vector<NodeId> ids;
    for (const GraphNode* node : step.group->nodes()) {
      ids.push_back(node->id());
    }
    result += "(" + c10::Join(" ", ids) + ")";
  }
  return result;
}

TEST(Schedule, NeighboursAreGrouped) {
  const std::string text =
      "%2 = aten::mul.Tensor(%0, %1)  # Float[4, 4] strides=[4, 1]\n"
      "%3 = aten::neg(%2)  # Float[4, 4] strides=[4, 1]\n"
      "%4 = aten::mm(%3, %1)  # Float[4, 4] strides=[4, 1]\n"
      "%5 = aten::abs(%4)  # Float[4, 4] strides=[4, 1]\n"
      "return %5\n";
  EXPECT_EQ(schedule(text), "(2 3) 4 5");
  EXPECT_EQ(schedule(text, Grouping::kNone), "2 3 4 5");
  EXPECT_EQ(schedule(text, Grouping::kAll), "(2 3) 4 (5)");
}

TEST(Schedule, FunctionsAreGroupsEvenAlone) {
  const std::string text =
      "%2 = aten::exp(%0)  # Float[4, 4] strides=[4, 1]\n"
      "%3 = aten::mm(%2, %1)  # Float[4, 4] strides=[4, 1]\n"
      "%4 = aten::gelu(%3, \"tanh\")  # Float[4, 4] strides=[4, 1]\n"
      "%5 = aten::mul.Tensor(%4, %1)  # Float[4, 4] strides=[4, 1]\n"
      "%6 = aten::mm(%5, %1)  # Float[4, 4] strides=[4, 1]\n"
      "%7 = aten::neg(%6)  # Float[4, 4] strides=[4, 1]\n"
      "return %7\n";
  EXPECT_EQ(schedule(text), "2 3 4 5 6 7");
  EXPECT_EQ(schedule(text, Grouping::kFunctions), "(2) 3 (4 5) 6 (7)");
}

TEST(Schedule, SmallCallsAreGroupsEvenAlone) {
  const std::string small = "%2 = aten::neg(%0)  # Float[4, 4] strides=[4, 1]\nreturn %2\n";
  EXPECT_EQ(schedule(small, Grouping::kFunctions), "(2)");
  EXPECT_EQ(schedule(small), "2");
  const std::string large =
      "%2 = device_data(2)  # Float[4097] strides=[1]\n"
      "%3 = aten::neg(%2)  # Float[4097] strides=[1]\n"
      "return %3\n";
  EXPECT_EQ(schedule(large, Grouping::kFunctions), "3");
}

// What they read is made by the graph, and nobody else reads it.
TEST(Schedule, LargeCallsAreGroupsEvenAloneWhereTheirResultLiesWhereAnInputLay) {
  const auto schedule_of = [](const std::string& dtype, const std::string& last, const std::string& roots) {
    const std::string type = "  # " + dtype + "[80, 80] strides=[80, 1]\n";
    return schedule(
        "%2 = device_data(2)" + type +       //
            "%3 = aten::mm(%2, %2)" + type + //
            "%4 = " + last + "return " + roots + "\n",
        Grouping::kFunctions);
  };
  const auto relu = [](const std::string& dtype) {
    return "aten::relu(%3)  # " + dtype + "[80, 80] strides=[80, 1]\n";
  };
  EXPECT_EQ(schedule_of("Float", relu("Float"), "%4"), "3 (4)");
  EXPECT_EQ(schedule_of("Double", relu("Double"), "%4"), "3 (4)");
  EXPECT_EQ(schedule_of("BFloat16", relu("BFloat16"), "%4"), "3 4");
  EXPECT_EQ(schedule_of("Float", relu("Float"), "%3, %4"), "3 4") << "somebody reads it";
  EXPECT_EQ(schedule_of("Float", "aten::relu_(%3)  # Float[80, 80] strides=[80, 1]\n", "%4"), "3 4") << "in place";
  EXPECT_EQ(schedule_of("Float", "aten::gt.Scalar(%3, 0)  # Bool[80, 80] strides=[80, 1]\n", "%4"), "3 4")
      << "another dtype";
  EXPECT_EQ(schedule_of("Float", "aten::sum.dim_IntList(%3, [1], False, None)  # Float[80] strides=[1]\n", "%4"), "3 4")
      << "rows";
}

TEST(Schedule, FunctionsThatLieOtherwiseAreNot) {
  const std::string text =
      "%2 = aten::exp_(%0)  # Float[4, 4] strides=[4, 1]\n"
      "%3 = aten::exp(%1[Float[4, 2] strides=[4, 2]])  # Float[4, 2] strides=[2, 1]\n"
      "%4 = aten::exp(%1[Float[2, 4] strides=[4, 1]])  # Float[2, 4] strides=[4, 1]\n"
      "return %2, %3, %4\n";
  EXPECT_EQ(schedule(text, Grouping::kFunctions), "2 3 (4)");
}

TEST(Schedule, AGroupWaitsWhileNobodyNeedsIt) {
  EXPECT_EQ(
      schedule(
          "%2 = aten::neg(%0)  # Float[4, 4] strides=[4, 1]\n"
          "%3 = aten::mm(%0, %1)  # Float[4, 4] strides=[4, 1]\n"
          "%4 = aten::mul.Tensor(%2, %3)  # Float[4, 4] strides=[4, 1]\n"
          "return %4\n"),
      "3 (2 4)");
}

// The products that are added up, and what takes no memory while a sum waits.
std::string sum_of_products(const std::string& matrix, const std::string& number) {
  const std::string type = "  # Float[" + matrix + ", " + matrix + "] strides=[" + matrix + ", 1]\n";
  return "%2 = device_data(2)" + type +                                    //
         "%3 = aten::mm(%2, %2)" + type +                                  //
         "%4 = aten::mm(%2, %2)" + type +                                  //
         "%5 = aten::add.Tensor(%3, %4, 1)" + type +                       //
         "%6 = aten::mm(%2, %2)" + type +                                  //
         "%7 = aten::add.Tensor(%5, %6, 1)" + type +                       //
         "%8 = " + (number.empty() ? "aten::mm(%2, %2)" + type : number) + //
         "%9 = aten::mul.Tensor(%7, %8)" + type +                          //
         "return %9\n";
}

TEST(Schedule, AGroupDoesNotWaitWhileItHoldsMuch) {
  EXPECT_EQ(schedule(sum_of_products("4", "")), "3 4 6 8 (5 7 9)");
  EXPECT_EQ(schedule(sum_of_products("100", "")), "3 4 6 (5 7) 8 9");
  const std::string number = "aten::trace(%0)  # Float[] strides=[]\n";
  EXPECT_EQ(schedule(sum_of_products("100", number)), "3 4 6 8 (5 7 9)");
}

TEST(Schedule, AGroupComesBeforeWhoWritesWhatItReads) {
  EXPECT_EQ(
      schedule(
          "%2 = aten::neg(%0)  # Float[4, 4] strides=[4, 1]\n"
          "%3 = aten::abs(%2)  # Float[4, 4] strides=[4, 1]\n"
          "%4 = aten::tril_(%0, 0)  # Float[4, 4] strides=[4, 1]\n"
          "%5 = aten::mul.Tensor(%3, %4)  # Float[4, 4] strides=[4, 1]\n"
          "return %5\n"),
      "(2 3) 4 5");
}

TEST(Schedule, OfTwoGroupsThatMeetOneComesFirst) {
  EXPECT_EQ(
      schedule(
          "%2 = device_data(2)  # Float[4] strides=[1]\n"
          "%3 = aten::neg(%2)  # Float[4] strides=[1]\n"
          "%4 = aten::neg(%0)  # Float[4, 4] strides=[4, 1]\n"
          "%5 = aten::abs(%3)  # Float[4] strides=[1]\n"
          "%6 = aten::mul.Tensor(%4, %5)  # Float[4, 4] strides=[4, 1]\n"
          "%7 = aten::neg(%5)  # Float[4] strides=[1]\n"
          "return %6, %7\n"),
      "(3 5) (4 6) 7");
}

TEST(Schedule, TwoGroupsThatMeetAreOneIfTheyFit) {
  EXPECT_EQ(
      schedule(
          "%2 = device_data(2)  # Float[65536] strides=[1]\n"
          "%3 = device_data(3)  # Float[65536] strides=[1]\n"
          "%4 = aten::neg(%2)  # Float[65536] strides=[1]\n"
          "%5 = aten::abs(%3)  # Float[65536] strides=[1]\n"
          "%6 = aten::neg(%5)  # Float[65536] strides=[1]\n"
          "%7 = aten::mul.Tensor(%4, %6)  # Float[65536] strides=[1]\n"
          "return %7\n"),
      "(4 5 6 7)");
}

TEST(Schedule, CallsThatHaveNothingToDoWithEachOtherShareAGroupIfTheyAreSmall) {
  const auto text = [](const std::string& layout) {
    return "%2 = device_data(2)  # " + layout + "\n%3 = device_data(3)  # " + layout + "\n%4 = aten::neg(%2)  # " +
           layout + "\n%5 = aten::abs(%3)  # " + layout + "\nreturn %4, %5\n";
  };
  EXPECT_EQ(schedule(text("Float[8] strides=[1]")), "(4 5)");
  EXPECT_EQ(schedule(text("Float[65536] strides=[1]")), "4 5");
}

TEST(Schedule, GroupsThatNobodyReadsAreLeftOut) {
  EXPECT_EQ(
      schedule(
          "%2 = aten::neg(%0)  # Float[4, 4] strides=[4, 1]\n"
          "%3 = aten::abs(%2)  # Float[4, 4] strides=[4, 1]\n"
          "return %0\n"),
      "");
}

// ---- concatenations of rows ----

const std::string kHalves =
    "%2 = device_data(2)  # Float[4, 128] strides=[128, 1]\n"
    "%3 = aten::neg(%2[Float[4, 64] strides=[128, 1] offset=64])  # Float[4, 64] strides=[64, 1]\n";
const std::string kJoined =
    "aten::cat([%3, %2[Float[4, 64] strides=[128, 1]]], -1)  # Float[4, 128] strides=[128, 1]\n";

TEST(Schedule, WhatMakesPartsOfRowsIsInTheGroup) {
  EXPECT_EQ(
      schedule(
          kHalves + "%4 = " + kJoined +
          "%5 = aten::mul.Tensor(%4, %2)  # Float[4, 128] strides=[128, 1]\n"
          "%6 = aten::mul.Tensor(%2, %2)  # Float[4, 128] strides=[128, 1]\n"
          "%7 = aten::add.Tensor(%6, %5, 1)  # Float[4, 128] strides=[128, 1]\n"
          "return %7\n"),
      "(3 4 5 6 7)");
}

TEST(Schedule, PartsLeaveTheGroupsThatWaitForThem) {
  EXPECT_EQ(
      schedule(
          kHalves +
          "%4 = aten::abs(%2[Float[4, 64] strides=[128, 1]])  # Float[4, 64] strides=[64, 1]\n%5 = " + kJoined +
          "%6 = aten::mul.Tensor(%5, %2)  # Float[4, 128] strides=[128, 1]\n"
          "%7 = aten::neg(%4)  # Float[4, 64] strides=[64, 1]\n"
          "return %6, %7\n"),
      "(4 7) (3 5 6)");
}

TEST(Schedule, OtherConcatenationsAreTheCpus) {
  const std::string reads = "%5 = aten::mul.Tensor(%4, %2)  # Float[4, 128] strides=[128, 1]\n";
  EXPECT_EQ(schedule(kHalves + "%4 = " + kJoined + reads + "return %5, %3\n"), "3 4 5") << "somebody else reads a part";
  EXPECT_EQ(schedule(kHalves + "%4 = " + kJoined + "return %4\n"), "3 4") << "nobody computes with it";
  const std::string of_others =
      "%4 = aten::cat([%2[Float[4, 64] strides=[128, 1]], %2[Float[4, 64] strides=[128, 1]]], -1)";
  EXPECT_EQ(schedule(kHalves + of_others + "  # Float[4, 128] strides=[128, 1]\n" + reads + "return %5, %3\n"), "4 3 5")
      << "nothing is computed for it";
  const std::string below = "%4 = aten::cat([%3, %3], 0)  # Float[8, 64] strides=[64, 1]\n";
  EXPECT_EQ(schedule(kHalves + below + "%5 = aten::neg(%4)  # Float[8, 64] strides=[64, 1]\nreturn %5\n"), "3 4 5")
      << "along another dimension";
  const std::string short_rows =
      "%2 = aten::neg(%0)  # Float[4, 4] strides=[4, 1]\n"
      "%3 = aten::cat([%2, %1], -1)  # Float[4, 8] strides=[8, 1]\n"
      "%4 = aten::abs(%3)  # Float[4, 8] strides=[8, 1]\n"
      "return %4\n";
  EXPECT_EQ(schedule(short_rows), "2 3 4");
}

} // namespace
} // namespace lazyplug
