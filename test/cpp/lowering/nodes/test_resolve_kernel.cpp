#include "lowering/nodes/resolve_kernel.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/irparser.h>

namespace lazyplug {
namespace {

const OpInfo& find_add(const OpKey& key) {
  EXPECT_EQ(key, (OpKey{c10::Symbol::fromQualString("aten::add"), "Tensor"}));
  static const OpInfo& op = make_op("aten::add", "Tensor");
  return op;
}

class ResolveKernel : public testing::Test {
 protected:
  // The only node that is no constant.
  const torch::jit::Node& node_of(const std::string& text) {
    torch::jit::parseIR(text, &graph_);
    for (const auto* node : graph_.nodes()) {
      if (node->kind() != torch::jit::prim::Constant) {
        return *node;
      }
    }
    throw std::logic_error("no node");
  }

  torch::jit::Graph graph_;
  TypeGeometries geometries_;
  const OpInfo* op_ = nullptr;
};

TEST_F(ResolveKernel, OpsAreFoundByNameAndOverload) {
  const auto& node = node_of(R"(
graph(%a : Tensor, %b : Tensor, %n : int):
  %c : Tensor = aten::add[overload="Tensor", origin=1](%a, %b, %n)
  return (%c)
)");
  const Kernel kernel = resolve_kernel(node, find_add, geometries_, op_);
  EXPECT_EQ(op_->name(), "aten::add.Tensor");
  EXPECT_EQ(kernel.num_inputs, 3);
  c10::Stack stack = {at::ones({2}), at::ones({2}), 3};
  kernel.run(stack);
  EXPECT_TRUE(stack.at(0).toTensor().equal(at::full({2}, 4)));
}

TEST_F(ResolveKernel, RuntimeOpsKnowTheirConstants) {
  const auto& node = node_of(R"(
graph():
  %dtype : int = prim::Constant[value=7]()
  %sizes : int[] = prim::Constant[value=[2, 3]]()
  %strides : int[] = prim::Constant[value=[1, 2]]()
  %c : Double(2, 3, strides=[1, 2]) = lazyplug::empty[origin=1](%dtype, %sizes, %strides)
  return (%c)
)");
  const Kernel kernel = resolve_kernel(node, find_add, geometries_, op_);
  EXPECT_EQ(op_, nullptr);
  EXPECT_EQ(kernel.num_inputs, 0);
  c10::Stack stack;
  kernel.run(stack);
  EXPECT_EQ(stack.at(0).toTensor().strides(), c10::IntArrayRef({1, 2}));
  EXPECT_EQ(stack.at(0).toTensor().scalar_type(), at::kDouble);
}

TEST_F(ResolveKernel, OwnNeedsToKnowTheLayout) {
  const auto& node = node_of(R"(
graph(%a : Tensor, %n : int[], %s : int[]):
  %c : Tensor = lazyplug::own[origin=1](%a, %n, %s)
  return (%c)
)");
  EXPECT_THROW(resolve_kernel(node, find_add, geometries_, op_), c10::Error);
}

} // namespace
} // namespace lazyplug
