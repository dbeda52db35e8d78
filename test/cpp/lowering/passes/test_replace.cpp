#include "lowering/passes/replace.h"

#include "test/cpp/lowering/graph_text.h"

namespace lazyplug {
namespace {

class Replace : public testing::Test {
 protected:
  // Whether, in the graph, the uses of %2 may become those of %1.
  static bool can(const std::string& rest) {
    Graph graph = parse(
        "%0 = device_data(0)  # Float[3] strides=[1]\n"
        "%1 = aten::exp(%0)  # Float[3] strides=[1]\n"
        "%2 = aten::tanh(%0)  # Float[3] strides=[1]\n" +
        rest);
    const auto leaf = graph.nodes().begin();
    return can_replace(std::next(leaf, 2)->output(0), std::next(leaf)->output(0));
  }
};

TEST_F(Replace, ReadsAndRootsMayReadAnotherValue) {
  EXPECT_TRUE(can("return %2\n"));
  EXPECT_FALSE(can("return %2, %1\n")) << "both need memory";
  EXPECT_TRUE(can("%3 = aten::mul.Tensor(%1, %2)  # Float[3] strides=[1]\nreturn %3\n"));
}

TEST_F(Replace, AWriterMayToo) {
  EXPECT_TRUE(can("%3 = aten::add_.Tensor(%2, %0, 1)  # Float[3] strides=[1]\nreturn %3, %1\n"));
}

TEST_F(Replace, ButNotIfItReadsTheOtherOne) {
  EXPECT_FALSE(can("%3 = aten::add_.Tensor(%2, %1, 1)  # Float[3] strides=[1]\nreturn %3\n"));
  EXPECT_FALSE(can("%3 = aten::add_.Tensor(%1, %2, 1)  # Float[3] strides=[1]\nreturn %3\n"));
}

TEST_F(Replace, WhatIsMadeOfALeafInPlaceHasItsMemory) {
  Graph graph = parse(
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "%1 = aten::exp_(%0)  # Float[3] strides=[1]\n"
      "%2 = aten::clone(%1, None)  # Float[3] strides=[1]\n"
      "return %2\n");
  GraphNode& clone = graph.nodes().back();
  EXPECT_FALSE(try_replace(graph, clone, whole_operand(clone, 0)));
  EXPECT_EQ(graph.nodes().size(), 3);
}

TEST_F(Replace, ViewsAreNotWhole) {
  const Graph graph = parse(
      "%0 = device_data(0)  # Float[3] strides=[1]\n"
      "%1 = aten::cat([%0[Float[1] strides=[1]], None, %0], 0)  # Float[4] strides=[1]\n"
      "return %1\n");
  const GraphNode& cat = graph.nodes().back();
  EXPECT_FALSE(whole_operand(cat, 0).defined());
  EXPECT_FALSE(whole_operand(cat, 1).defined());
  EXPECT_TRUE(whole_operand(cat, 2).defined());
}

} // namespace
} // namespace lazyplug
