#include "lowering/fusion/fusible_calls.h"

#include "test/cpp/lowering/graph_text.h"

namespace lazyplug {
namespace {

class FusibleCalls : public testing::Test {
 protected:
  // A call of a matrix, %0, a matrix of integers, %1, a row, %2, and a number, %3.
  const GraphNode& call(const std::string& text) {
    graph_.emplace(parse(
        "%0 = device_data(0)  # Float[4, 64] strides=[64, 1]\n"
        "%1 = device_data(1)  # Long[4, 64] strides=[64, 1]\n"
        "%2 = device_data(2)  # Float[64] strides=[1]\n"
        "%3 = device_data(3)  # Double[] strides=[] number\n"
        "%4 = " +
        text + "\nreturn %4\n"));
    const GraphNode* last = nullptr;
    for (const GraphNode& node : graph_->nodes()) {
      last = &node;
    }
    return *last;
  }
  bool makes_values(const std::string& text) {
    const GraphNode& node = call(text);
    return lazyplug::makes_values(node, *find_pointwise_op(node.op(), node.signature()->args));
  }

  std::optional<Graph> graph_;
};

TEST_F(FusibleCalls, NumbersDoNotPromote) {
  EXPECT_EQ(promoted_dtype(*call("aten::gt.Tensor(%0, %3)  # Bool[4, 64] strides=[64, 1]").signature()), at::kFloat);
  EXPECT_EQ(promoted_dtype(*call("aten::gt.Tensor(%1, %3)  # Bool[4, 64] strides=[64, 1]").signature()), at::kLong);
  EXPECT_EQ(promoted_dtype(*call("aten::gt.Tensor(%1, %2)  # Bool[4, 64] strides=[64, 1]").signature()), at::kFloat);
}

TEST_F(FusibleCalls, MakeANewValueOrWriteAllOfTheFirstOperand) {
  EXPECT_TRUE(makes_values("aten::mul.Tensor(%0, %2)  # Float[4, 64] strides=[64, 1]"));
  EXPECT_TRUE(makes_values("aten::mul_.Tensor(%0, %2)  # Float[4, 64] strides=[64, 1]"));
  EXPECT_FALSE(makes_values("aten::mul_.Tensor(%0[Float[2, 64] strides=[64, 1]], %2)  # Float[4, 64] strides=[64, 1]"))
      << "a part of it";
}

TEST_F(FusibleCalls, FunctionsAreThePackagesOwnWhereverTheyRun) {
  EXPECT_TRUE(function_of(call("aten::exp(%0)  # Float[4, 64] strides=[64, 1]")));
  EXPECT_FALSE(function_of(call("aten::neg(%0)  # Float[4, 64] strides=[64, 1]"))) << "no function";
  EXPECT_FALSE(function_of(call("aten::exp(%1)  # Float[4, 64] strides=[64, 1]"))) << "of integers";
  EXPECT_FALSE(function_of(call("aten::exp_(%0)  # Float[4, 64] strides=[64, 1]"))) << "it writes";
}

} // namespace
} // namespace lazyplug
