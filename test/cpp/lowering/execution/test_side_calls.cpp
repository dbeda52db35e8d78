#include "lowering/execution/side_calls.h"

#include "lowering/calls/runtime_ops.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <cmath>

namespace lazyplug {
namespace {

using Places = std::vector<size_t>;

constexpr double kLeast = 1e-4;

// Matrices are 1024x1024: a product takes milliseconds, a sum much less, but more than the least.
class SideCallsTest : public testing::Test {
 protected:
  std::vector<const torch::jit::Node*> parse(const std::string& nodes, const std::string& results) {
    const std::string matrix = "Float(1024, 1024, strides=[1024, 1])";
    std::string text = "graph(%a : M, %b : M, %n : int):\n" + nodes + "  return (" + results + ")\n";
    for (size_t at = text.find(": M"); at != std::string::npos; at = text.find(": M")) {
      text.replace(at + 2, 1, matrix);
    }
    graph_ = std::make_shared<torch::jit::Graph>();
    torch::jit::parseIR(text, graph_.get());
    std::vector<const torch::jit::Node*> result;
    for (const auto* node : graph_->nodes()) {
      if (node->kind() != torch::jit::prim::Constant) {
        result.push_back(node);
      }
    }
    return result;
  }

  Places find(const std::string& nodes, const std::string& results, double least = kLeast) {
    return find_side_calls(parse(nodes, results), least);
  }

  std::shared_ptr<torch::jit::Graph> graph_ = std::make_shared<torch::jit::Graph>();
};

TEST_F(SideCallsTest, ProductThatIsNotNeededAtOnceRunsBesideTheNext) {
  EXPECT_EQ(
      find(
          "  %c : M = aten::mm(%a, %b)\n"
          "  %d : M = aten::mm(%b, %a)\n"
          "  %e : M = aten::add(%d, %c, %n)\n",
          "%e"),
      Places({2, kNoSideCall, kNoSideCall}))
      << "nothing is to be done beside the second";
}

TEST_F(SideCallsTest, ResultsMayBeNeededByNobodyElse) {
  EXPECT_EQ(
      find(
          "  %c : M = aten::mm(%a, %b)\n"
          "  %d : M = aten::mm(%b, %a)\n",
          "%c, %d"),
      Places({2, kNoSideCall}));
}

TEST_F(SideCallsTest, ChainHasNone) {
  EXPECT_EQ(
      find(
          "  %c : M = aten::mm(%a, %b)\n"
          "  %d : M = aten::mm(%c, %a)\n"
          "  %e : M = aten::mm(%d, %a)\n",
          "%e"),
      Places(3, kNoSideCall));
}

TEST_F(SideCallsTest, OthersRunInOrder) {
  EXPECT_EQ(
      find(
          "  %c : M = aten::tanh(%a)\n"
          "  %d : M = aten::tanh(%b)\n"
          "  %e : M = aten::add(%d, %c, %n)\n",
          "%e"),
      Places(3, kNoSideCall));
}

TEST_F(SideCallsTest, SmallOnesAreNotWorthIt) {
  const std::string nodes =
      "  %c : M = aten::mm(%a, %b)\n"
      "  %d : M = aten::mm(%b, %a)\n"
      "  %e : M = aten::add(%d, %c, %n)\n";
  EXPECT_EQ(find(nodes, "%e", /*least=*/1), Places(3, kNoSideCall));
}

// %x is a result. If it dies, the sum may be written there: not while the product reads it.
TEST_F(SideCallsTest, WhoMightTakeTheMemoryOfAnOperandWaits) {
  const std::string nodes =
      "  %x : M = aten::tanh(%a)\n"
      "  %c : M = aten::mm(%a, %x)\n"
      "  %d : M = aten::mm(%a, %a)\n"
      "  %e : M = aten::add(%x, %d, %n)\n";
  EXPECT_EQ(
      find(nodes + "  %f : M = aten::mm(%e, %d)\n", "%c, %f"),
      Places({kNoSideCall, 3, kNoSideCall, kNoSideCall, kNoSideCall}));
  EXPECT_EQ(
      find(nodes + "  %f : M = aten::mm(%e, %x)\n", "%c, %f"),
      Places({kNoSideCall, 5, kNoSideCall, kNoSideCall, kNoSideCall}))
      << "it is read again";
}

TEST_F(SideCallsTest, WhoWritesAnOperandWaitsThroughViewsAndLists) {
  for (const char* base : {"%a", "%v"}) {
    const std::string nodes =
        "  %one : int = prim::Constant[value=1]()\n"
        "  %no : bool = prim::Constant[value=0]()\n"
        "  %list : int[] = prim::Constant[value=[1024, 1024]]()\n"
        "  %v : M = lazyplug::strided_view(%a, %list, %list, %one, %list, %list, %one, %no, %no, %no)\n"
        "  %c : M = aten::mm(%b, %v)\n"
        "  %d : M = aten::mm(%b, %b)\n"
        "  %o : M = lazyplug::own(" +
        std::string(base) + ")\n";
    EXPECT_EQ(find(nodes, "%c, %d, %o"), Places({kNoSideCall, 3, kNoSideCall, kNoSideCall})) << base;
  }
}

TEST_F(SideCallsTest, EstimatesCountMultiplications) {
  const auto nodes = parse(
      "  %c : M = aten::mm(%a, %b)\n"
      "  %e : M = aten::add(%a, %c, %n)\n",
      "%e");
  const double product = estimated_seconds(*nodes[0]);
  EXPECT_GT(product, 5e-3);
  EXPECT_LT(product, 0.5);
  EXPECT_LT(estimated_seconds(*nodes[1]), product / 10);
  EXPECT_GT(estimated_seconds(*nodes[1]), kLeast);
}

TEST_F(SideCallsTest, EstimatesOfConvolutionsCountTheirWindows) {
  const std::string image = "Float(8, 16, 32, 32, strides=[16384, 1024, 32, 1])";
  const std::string weight = "Float(16, 16, 3, 3, strides=[144, 9, 3, 1])";
  torch::jit::parseIR(
      "graph(%x : " + image + ", %w : " + weight + ", %n : int, %l : int[]):\n  %y : " + image +
          " = aten::convolution(%x, %w, %n, %l, %l, %l, %n, %l, %n)\n"
          "  %gx : " +
          image + ", %gw : " + weight +
          ", %gb : Tensor = aten::convolution_backward(%y, %x, %w, %n, %l, %l, %l, %n, %l, %n, %l)\n"
          "  return (%gx, %gw, %gb)\n",
      graph_.get());
  auto node = graph_->nodes().begin();
  const double forward = estimated_seconds(**node);
  EXPECT_NEAR(forward * 30e9, 8.0 * 16 * 32 * 32 * 144, 1);
  EXPECT_DOUBLE_EQ(estimated_seconds(**++node), forward);
}

} // namespace
} // namespace lazyplug
