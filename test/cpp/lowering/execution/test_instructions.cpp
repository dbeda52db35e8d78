#include "lowering/execution/instructions.h"

#include "lowering/calls/runtime_ops.h"
#include "lowering/lowering_context.h"
#include "lowering/nodes/node_attributes.h"
#include "test/cpp/common/scoped_flag.h"
#include "test/cpp/lowering/computation_test.h"

namespace lazyplug {
namespace {

using Kind = Instruction::Read::Kind;

class InstructionsTest : public PairTest<testing::Test> {
 protected:
  // Of what `roots` depend on.
  const Instructions& make(c10::ArrayRef<Value> roots) {
    Graph graph(trace, roots);
    lowered_ = LoweringContext(graph).lower();
    const auto find = [this](const OpKey& name) -> const OpInfo& { return *lowered_.ops.at(name); };
    made_ = make_instructions(*lowered_.graph, find, lowered_.checked);
    return made_;
  }
  Value add_square_of_view() {
    const Value base = add_leaf(trace, at::ones({2, 3}));
    const Operand view = view_of(trace, base, geometry_of(at::ones({2, 3}).t()));
    return add_mul(trace, view, view, floats({3, 2}));
  }
  // How the instruction reads its registers.
  std::vector<Kind> reads_of_registers(size_t place) const {
    std::vector<Kind> kinds;
    for (const auto& read : made_.list[place].reads) {
      if (read.kind != Kind::kConstant) {
        kinds.push_back(read.kind);
      }
    }
    return kinds;
  }

  const ScopedFlag<int64_t> no_groups_{config().fusion, 0};
  LoweredGraph lowered_;
  Instructions made_;
};

TEST_F(InstructionsTest, RegistersAreInputsThenOutputs) {
  const Value sum = add_add(trace, {a}, {a}, kPair);
  const Value product = add_mul(trace, {sum}, {a}, kPair);
  const Instructions& made = make({sum, product});
  EXPECT_EQ(made.num_inputs, 2) << "the leaf, and a scalar";
  ASSERT_EQ(made.list.size(), 2);
  EXPECT_EQ(made.list[0].first_output, 2);
  EXPECT_EQ(made.list[1].first_output, 3);
  EXPECT_EQ(made.num_registers, 4);
  EXPECT_EQ(made.num_ops, 2);
  ASSERT_EQ(made.roots.size(), 2);
  EXPECT_EQ(made.roots[0].index, 2);
  EXPECT_EQ(made.roots[1].index, 3);
}

TEST_F(InstructionsTest, LastReadsTakeTheValue) {
  const Value sum = add_add(trace, {a}, {a}, kPair);
  const Value product = add_mul(trace, {a}, {sum}, kPair);
  const Instructions& made = make({product, sum});
  EXPECT_EQ(reads_of_registers(0), (std::vector<Kind>{Kind::kCopy, Kind::kCopy, Kind::kTake})) << "a, a, the scalar";
  EXPECT_EQ(reads_of_registers(1), (std::vector<Kind>{Kind::kTake, Kind::kCopy})) << "the sum is a root, too";
  EXPECT_EQ(made.roots[0].kind, Kind::kTake);
  EXPECT_EQ(made.roots[1].kind, Kind::kTake);
}

TEST_F(InstructionsTest, DonorsAreOperandsThatDieAndLieAsTheResult) {
  const Value sum = add_add(trace, {a}, {a}, kPair);
  const Value product = add_mul(trace, {a}, {sum}, kPair);
  const Instructions& made = make({product, a});
  EXPECT_TRUE(made.list[0].donors.empty()) << "the leaf is read later";
  EXPECT_EQ(made.list[1].donors.size(), 1) << "it is a root, too";
  EXPECT_EQ(made.list[1].donors[0], 1);
}

TEST_F(InstructionsTest, ListsOfConstantsAreConstants) {
  const Instructions& made = make({add_square_of_view()});
  size_t lists = 0;
  for (const c10::IValue& constant : made.constants) {
    lists += constant.isList();
  }
  EXPECT_GE(lists, 2) << "sizes and strides of a view";
  for (const Instruction& instruction : made.list) {
    EXPECT_TRUE(instruction.run) << "no instruction makes a list";
  }
}

TEST_F(InstructionsTest, WhatPreparesACallSpeaksInItsName) {
  const Instructions& made = make({add_square_of_view()});
  ASSERT_GE(made.list.size(), 2);
  for (const Instruction& instruction : made.list) {
    EXPECT_STREQ(instruction.call_name, "aten::mul.Tensor");
  }
}

} // namespace
} // namespace lazyplug
