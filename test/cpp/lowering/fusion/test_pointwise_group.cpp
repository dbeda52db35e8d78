#include "lowering/fusion/pointwise_group.h"

#include "kernels/sums.h"
#include "test/cpp/lowering/graph_text.h"

namespace lazyplug {
namespace {

const std::string kMatrixRowNumber =
    "%0 = device_data(0)  # Float[4, 8] strides=[8, 1]\n"
    "%1 = device_data(1)  # Float[8] strides=[1]\n"
    "%2 = device_data(2)  # Double[] strides=[] number\n";

class PointwiseGroups : public testing::Test {
 protected:
  // The nodes after those of kMatrixRowNumber; each is offered to the group in turn.
  std::string add_all(const std::string& text, bool functions = false) {
    graph.emplace(parse(kMatrixRowNumber + text));
    group.emplace(*graph, functions);
    std::string taken;
    for (GraphNode& node : graph->nodes()) {
      if (node.kind() != NodeKind::kDeviceData) {
        taken += group->add(node) ? "1" : "0";
      }
    }
    return taken;
  }
  std::string program() const {
    return kernels::to_string(group->program(group->outputs()));
  }

  std::optional<Graph> graph;
  std::optional<PointwiseGroup> group;
};

TEST_F(PointwiseGroups, AreProgramsOfInputsOutputsAndTemporaries) {
  EXPECT_EQ(
      add_all(
          "%3 = aten::mul.Tensor(%0, %1)  # Float[4, 8] strides=[8, 1]\n"
          "%4 = aten::add.Tensor(%3, %2, 1)  # Float[4, 8] strides=[8, 1]\n"
          "%5 = aten::neg(%4)  # Float[4, 8] strides=[8, 1]\n"
          "%6 = aten::mul.Tensor(%5, %4)  # Float[4, 8] strides=[8, 1]\n"
          "return %6, %4\n"),
      "1111");
  EXPECT_EQ(program(), "f32 memory 5 slots 6 numbers 1 5 = mul 0 1 ; 3 = add 5 2 0 ; 5 = neg 3 ; 4 = mul 5 3 ;");
  ASSERT_EQ(group->inputs().size(), 3);
  EXPECT_EQ(group->inputs()[0].strides, (c10::DimVector{8, 1}));
  EXPECT_EQ(group->inputs()[1].strides, (c10::DimVector{0, 1}));
  EXPECT_EQ(group->inputs()[2].strides, (c10::DimVector{0, 0}));
  const auto outputs = group->outputs();
  ASSERT_EQ(outputs.size(), 2);
  EXPECT_EQ(outputs[0].inputs, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_FALSE(outputs[0].old);
}

TEST_F(PointwiseGroups, ReadWhatComesFromElsewhereThroughViews) {
  EXPECT_EQ(
      add_all(
          "%3 = aten::mul.Tensor(%0[Float[2, 4] strides=[16, 2] offset=1], %0[Float[2, 1] strides=[8, 1]])"
          "  # Float[2, 4] strides=[4, 1]\n"
          "%4 = aten::neg(%3)  # Float[2, 4] strides=[4, 1]\n"
          "%5 = aten::abs(%4[Float[2, 4] strides=[1, 2]])  # Float[2, 4] strides=[4, 1]\n"
          "return %5\n"),
      "110");
  ASSERT_EQ(group->inputs().size(), 2);
  EXPECT_EQ(group->inputs()[0].offset, 1);
  EXPECT_EQ(group->inputs()[0].strides, (c10::DimVector{16, 2}));
  EXPECT_EQ(group->inputs()[1].strides, (c10::DimVector{8, 0}));
}

TEST_F(PointwiseGroups, WhatMayMoveIsAnInputOfItsOwn) {
  EXPECT_EQ(
      add_all(
          "%3 = aten::mul.Tensor(%0[Float[2] strides=[1] offset=1], %0[Float[2] strides=[1] at=1])"
          "  # Float[2] strides=[1]\n"
          "%4 = aten::mul.Tensor(%3, %0[Float[2] strides=[1] at=1])  # Float[2] strides=[1]\n"
          "return %4\n"),
      "11");
  ASSERT_EQ(group->inputs().size(), 2);
  EXPECT_FALSE(group->inputs()[0].moves());
  EXPECT_TRUE(group->inputs()[1].moves());
}

TEST_F(PointwiseGroups, MasksStayNumbersWithinAGroup) {
  EXPECT_EQ(
      add_all(
          "%3 = aten::gt.Scalar(%0, 0.5)  # Bool[4, 8] strides=[8, 1]\n"
          "%4 = aten::where.self(%3, %0, %1)  # Float[4, 8] strides=[8, 1]\n"
          "%5 = aten::mul.Tensor(%4, %3)  # Float[4, 8] strides=[8, 1]\n"
          "return %5, %3\n"),
      "111");
  EXPECT_EQ(program(), "f32 memory 4 slots 5 numbers 1 4 = number 0 ; 2 = gt 0 4 ; 4 = where 2 0 1 ; 3 = mul 4 2 ;");
}

TEST_F(PointwiseGroups, AWriteIsANewValueThatKnowsTheOldOne) {
  EXPECT_EQ(
      add_all(
          "%3 = aten::add_.Tensor(%0, %1, 1)  # Float[4, 8] strides=[8, 1]\n"
          "%4 = aten::mul_.Tensor(%3, %2)  # Float[4, 8] strides=[8, 1]\n"
          "return %4\n"),
      "11");
  const auto outputs = group->outputs();
  ASSERT_EQ(outputs.size(), 1);
  EXPECT_EQ(outputs[0].old, 0);
}

TEST_F(PointwiseGroups, WhatIsFilledDependsOnWhatWasThere) {
  EXPECT_EQ(
      add_all(
          "%3 = aten::zero_(%0)  # Float[4, 8] strides=[8, 1]\n"
          "%4 = aten::add.Tensor(%3, %1, 1)  # Float[4, 8] strides=[8, 1]\n"
          "return %3, %4\n"),
      "11");
  EXPECT_EQ(program(), "f32 memory 4 slots 4 numbers 1 2 = zero ; 3 = add 2 1 0 ;");
  EXPECT_EQ(group->outputs()[0].inputs, (std::vector<uint32_t>{0}));
  EXPECT_EQ(group->outputs()[1].inputs, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(group->outputs()[0].old, 0);
}

TEST_F(PointwiseGroups, RefuseWhatLiesOtherwise) {
  EXPECT_EQ(
      add_all(
          "%3 = aten::neg(%0)  # Float[4, 8] strides=[8, 1]\n"
          "%4 = aten::neg(%1)  # Float[8] strides=[1]\n"
          "%5 = aten::neg(%0)  # Float[4, 8] strides=[1, 4]\n"
          "%6 = aten::neg(%2)  # Double[] strides=[]\n"
          "%7 = aten::neg_(%0[Float[4, 8] strides=[8, 1]])  # Float[4, 8] strides=[8, 1]\n"
          "%8 = aten::exp(%3)  # Float[4, 8] strides=[8, 1]\n"
          "return %3, %4, %5, %6, %7, %8\n"),
      "100000");
}

TEST_F(PointwiseGroups, TakeFunctionsIfTheyAreTo) {
  graph.emplace(parse(
      kMatrixRowNumber +
      "%3 = aten::softplus(%0, 1, 20)  # Float[4, 8] strides=[8, 1]\n"
      "%4 = aten::gelu(%3, \"tanh\")  # Float[4, 8] strides=[8, 1]\n"
      "return %4\n"));
  group.emplace(*graph, /*functions=*/true);
  for (GraphNode& node : graph->nodes()) {
    EXPECT_EQ(node.is_call(), group->add(node));
  }
  EXPECT_TRUE(group->has_functions());
  EXPECT_EQ(program(), "f32 memory 2 slots 3 numbers 2 2 = softplus 0 0 1 ; 1 = gelu_tanh 2 ;");
}

TEST_F(PointwiseGroups, RoundWhatNarrowFloatsHold) {
  EXPECT_EQ(
      add_all(
          "%3 = device_data(3)  # BFloat16[4, 8] strides=[8, 1]\n"
          "%4 = aten::mul.Tensor(%3, %2)  # BFloat16[4, 8] strides=[8, 1]\n"
          "%5 = aten::add.Tensor(%4, %2, 1)  # BFloat16[4, 8] strides=[8, 1]\n"
          "%6 = aten::relu(%5)  # BFloat16[4, 8] strides=[8, 1]\n"
          "%7 = aten::gt.Scalar(%6, 0.1)  # Bool[4, 8] strides=[8, 1]\n"
          "%8 = aten::mul.Tensor(%6, %0)  # Float[4, 8] strides=[8, 1]\n"
          "%9 = aten::add.Tensor(%3, %3, 0.5)  # BFloat16[4, 8] strides=[8, 1]\n"
          "%10 = aten::rsqrt(%3)  # BFloat16[4, 8] strides=[8, 1]\n"
          "%11 = aten::_to_copy(%8, 5, None, None, None, None, None)  # Half[4, 8] strides=[8, 1]\n"
          "return %7, %8, %9, %10, %11\n"),
      "11111001");
  EXPECT_EQ(
      program(),
      "f32 memory 6 slots 8 numbers 2 6 = mul 0 1 ; 6 = to_bfloat16 6 ; 7 = to_bfloat16 1 ; 7 = add 6 7 0 ; "
      "7 = to_bfloat16 7 ; 7 = relu 7 ; 6 = number 1 ; 6 = to_bfloat16 6 ; 3 = gt 7 6 ; 4 = mul 7 2 ; 5 = copy 4 ;");
}

TEST_F(PointwiseGroups, RoundFunctionsOfNarrowFloatsOnce) {
  graph.emplace(parse(
      "%0 = device_data(0)  # BFloat16[4, 8] strides=[8, 1]\n"
      "%1 = aten::silu(%0)  # BFloat16[4, 8] strides=[8, 1]\n"
      "%2 = aten::_softmax(%1, -1, False)  # BFloat16[4, 8] strides=[8, 1]\n"
      "%3 = aten::sin(%2)  # BFloat16[4, 8] strides=[8, 1]\n"
      "return %3\n"));
  group.emplace(*graph, /*functions=*/true);
  std::string taken;
  for (GraphNode& node : graph->nodes()) {
    taken += node.is_call() ? group->add(node) ? "1" : "0" : "";
  }
  EXPECT_EQ(taken, "110") << "sines of narrow floats are the CPU's";
  EXPECT_EQ(program(), "f32 memory 2 slots 3 numbers 0 2 = silu 0 ; 2 = to_bfloat16 2 ; 1 = softmax 2 ;");
}

TEST_F(PointwiseGroups, OfIntegersComputeInTheirDtype) {
  EXPECT_EQ(
      add_all(
          "%3 = device_data(3)  # Int[4, 8] strides=[8, 1]\n"
          "%4 = device_data(4)  # Bool[4, 8] strides=[8, 1]\n"
          "%5 = aten::bitwise_and.Scalar(%3, 7)  # Int[4, 8] strides=[8, 1]\n"
          "%6 = aten::maximum(%5, %3)  # Int[4, 8] strides=[8, 1]\n"
          "%7 = aten::bitwise_and.Tensor(%4, %4)  # Bool[4, 8] strides=[8, 1]\n"
          "%8 = aten::mul.Tensor(%6, %7)  # Int[4, 8] strides=[8, 1]\n"
          "%9 = aten::add.Tensor(%8, %8, 2)  # Int[4, 8] strides=[8, 1]\n"
          "%10 = aten::lt.Scalar(%9, 0.5)  # Bool[4, 8] strides=[8, 1]\n"
          "%11 = aten::_to_copy(%0, 3, None, None, None, None, None)  # Int[4, 8] strides=[8, 1]\n"
          "%12 = aten::_to_copy(%9, 4, None, None, None, None, None)  # Long[4, 8] strides=[8, 1]\n"
          "return %9, %10, %11, %12\n"),
      "11111000");
  EXPECT_EQ(
      program(),
      "i32 memory 3 slots 5 numbers 2 3 = number 0 ; 3 = bit_and 0 3 ; 3 = maximum 3 0 ; 4 = mul 1 1 ; 4 = mul 3 4 ; "
      "2 = add 4 4 1 ;");
}

TEST_F(PointwiseGroups, ComputeInOneDtypeAndSomethingAtAll) {
  EXPECT_EQ(
      add_all(
          "%3 = aten::eq.Scalar(%0[Float[0] strides=[1]], 1)  # Bool[0] strides=[1]\n"
          "%4 = device_data(3)  # Long[4] strides=[1]\n"
          "%5 = aten::add.Tensor(%4, %4, 1)  # Long[4] strides=[1]\n"
          "%6 = aten::gt.Tensor(%4, %2)  # Bool[4] strides=[1]\n"
          "%7 = aten::div.Tensor(%4, %4)  # Float[4] strides=[1]\n"
          "return %3, %5, %6, %7\n"),
      "0100");
}

TEST_F(PointwiseGroups, WhatComparesInAnotherDtypeThanItWritesIsRefused) {
  EXPECT_EQ(
      add_all(
          "%3 = device_data(3)  # Double[4, 8] strides=[8, 1]\n"
          "%4 = aten::lt_.Tensor(%0, %3)  # Float[4, 8] strides=[8, 1]\n"
          "%5 = aten::lt_.Tensor(%4, %1)  # Float[4, 8] strides=[8, 1]\n"
          "return %5\n"),
      "01");
}

TEST_F(PointwiseGroups, RefuseWhatTheCpuRoundsByPlace) {
  EXPECT_EQ(
      add_all(
          "%3 = aten::add.Tensor(%0, %1, 1)  # Float[4, 8] strides=[8, 1]\n"
          "%4 = aten::add.Tensor(%0, %1, 0.5)  # Float[4, 8] strides=[8, 1]\n"
          "%5 = aten::sub.Scalar(%0, 2, 0.5)  # Float[4, 8] strides=[8, 1]\n"
          "%6 = aten::sub.Scalar(%0, 2, 1)  # Float[4, 8] strides=[8, 1]\n"
          "%7 = aten::rsub.Scalar(%0, 2, 0.5)  # Float[4, 8] strides=[8, 1]\n"
          "%8 = aten::add.Tensor(%1, %0, 0.5)  # Float[4, 8] strides=[8, 1]\n"
          "%9 = aten::tanh_backward(%0, %1)  # Float[4, 8] strides=[8, 1]\n"
          "%10 = aten::tanh_backward(%1, %0)  # Float[4, 8] strides=[8, 1]\n"
          "return %3, %4, %5, %6, %7, %8, %9, %10\n"),
      "10011101");
}

TEST_F(PointwiseGroups, RefuseLargeInputsInSmallPieces) {
  EXPECT_EQ(
      add_all(
          "%3 = device_data(3)  # Float[64, 1, 3] strides=[3, 3, 1]\n"
          "%4 = device_data(4)  # Float[64, 3] strides=[3, 1]\n"
          "%5 = aten::neg(%3[Float[64, 64, 3] strides=[3, 0, 1]])  # Float[64, 64, 3] strides=[192, 3, 1]\n"
          "%6 = aten::neg(%4[Float[64, 64, 3] strides=[0, 3, 1]])  # Float[64, 64, 3] strides=[192, 3, 1]\n"
          "return %5, %6\n"),
      "01");
}

TEST_F(PointwiseGroups, HaveRoomForSoManyNodes) {
  std::string text;
  std::string expected;
  for (size_t i = 0; i < PointwiseGroup::kMaxNodes + 3; ++i) {
    text += "%" + std::to_string(3 + i) + " = aten::neg(%" + std::to_string(i == 0 ? 0 : 2 + i) +
            ")  # Float[4, 8] strides=[8, 1]\n";
    expected += i < PointwiseGroup::kMaxNodes ? "1" : "0";
  }
  EXPECT_EQ(add_all(text + "return %" + std::to_string(2 + PointwiseGroup::kMaxNodes) + "\n"), expected);
  EXPECT_EQ(group->program(group->outputs()).num_slots, 3);
}

// ---- rows ----

const std::string kRows =
    "%3 = device_data(3)  # Float[4, 64] strides=[64, 1]\n"
    "%4 = device_data(4)  # Float[64] strides=[1]\n";

TEST_F(PointwiseGroups, MayHaveMeansOfRowsAndWhatComesOfThem) {
  EXPECT_EQ(
      add_all(
          kRows + "%5 = aten::pow.Tensor_Scalar(%3, 2)  # Float[4, 64] strides=[64, 1]\n"
                  "%6 = aten::mean.dim(%5, [-1], True, None)  # Float[4, 1] strides=[1, 1]\n"
                  "%7 = aten::add.Scalar(%6, 0.5, 1)  # Float[4, 1] strides=[1, 1]\n"
                  "%8 = aten::rsqrt(%7)  # Float[4, 1] strides=[1, 1]\n"
                  "%9 = aten::mul.Tensor(%3, %8)  # Float[4, 64] strides=[64, 1]\n"
                  "%10 = aten::mul.Tensor(%9, %4)  # Float[4, 64] strides=[64, 1]\n"
                  "return %10, %8\n"),
      "111111");
  EXPECT_EQ(
      program(),
      "f32 memory 4 slots 7 numbers 2 4 = square 0 ; 5 = row_mean 4 ; 6 = row:number 0 ; 6 = row:add 5 6 1 ; "
      "2 = row:rsqrt 6 ; 4 = spread 2 ; 4 = mul 0 4 ; 3 = mul 4 1 ;");
  const auto outputs = group->outputs();
  ASSERT_EQ(outputs.size(), 2);
  EXPECT_TRUE(outputs[0].is_for_row);
  EXPECT_FALSE(outputs[1].is_for_row);
}

TEST_F(PointwiseGroups, WhatIsMadeForRowsMayBeWritten) {
  EXPECT_EQ(
      add_all(
          kRows + "%5 = device_data(5)  # Float[4, 1] strides=[1, 1]\n"
                  "%6 = aten::mean.dim(%3, [-1], True, None)  # Float[4, 1] strides=[1, 1]\n"
                  "%7 = aten::add_.Scalar(%6, 0.5, 1)  # Float[4, 1] strides=[1, 1]\n"
                  "%8 = aten::mul.Tensor(%3, %7)  # Float[4, 64] strides=[64, 1]\n"
                  "%9 = aten::mul_.Tensor(%5, %7)  # Float[4, 1] strides=[1, 1]\n"
                  "return %6, %7, %8, %9\n"),
      "1110")
      << "what comes from elsewhere is not written";
  EXPECT_EQ(
      program(),
      "f32 memory 4 slots 6 numbers 2 1 = row_mean 0 ; 4 = row:number 0 ; 2 = row:add 1 4 1 ; 5 = spread 2 ; "
      "3 = mul 0 5 ;");
  for (const auto& output : group->outputs()) {
    EXPECT_FALSE(output.old) << "made by the group itself";
  }
}

TEST_F(PointwiseGroups, MayHaveNormsOfRowsAndSeeThemThroughViews) {
  EXPECT_EQ(
      add_all(
          kRows + "%5 = aten::linalg_vector_norm(%3, 2, [-1], False, None)  # Float[4] strides=[1]\n"
                  "%6 = aten::div.Tensor(%3, %5[Float[4, 1] strides=[1, 1]])  # Float[4, 64] strides=[64, 1]\n"
                  "%7 = aten::mul.Tensor(%6, %5[Float[4, 64] strides=[1, 0]])  # Float[4, 64] strides=[64, 1]\n"
                  "%8 = aten::mul.Tensor(%3, %5[Float[1] strides=[1] offset=1])  # Float[4, 64] strides=[64, 1]\n"
                  "%9 = aten::mul.Tensor(%3, %5[Float[4, 1] strides=[0, 1]])  # Float[4, 64] strides=[64, 1]\n"
                  "%10 = aten::mul.Tensor(%3, %5[Float[4, 1] strides=[1, 1] at=1])  # Float[4, 64] strides=[64, 1]\n"
                  "return %7, %8, %9, %10\n"),
      kernels::has_norms_of_pytorch() ? "111000" : "000000");
  EXPECT_EQ(
      program(),
      kernels::has_norms_of_pytorch()
          ? "f32 memory 3 slots 5 numbers 0 1 = row_norm 0 ; 3 = spread 1 ; 4 = div 0 3 ; 2 = mul 4 3 ;"
          : "");
  EXPECT_EQ(
      add_all(
          kRows + "%5 = aten::linalg_vector_norm(%3, 1, [-1], False, None)  # Float[4] strides=[1]\n"
                  "%6 = aten::linalg_vector_norm(%3, 2, [0], False, None)  # Float[64] strides=[1]\n"
                  "return %5, %6\n"),
      "00");
}

TEST_F(PointwiseGroups, TakeNoOtherSums) {
  for (const char* sum :
       {"aten::sum.dim_IntList(%5, [0], True, None)  # Float[1, 64] strides=[64, 1]\n",
        "aten::sum.dim_IntList(%5, [0, 1], True, None)  # Float[1, 1] strides=[1, 1]\n",
        "aten::sum.dim_IntList(%5, [1], True, 7)  # Double[4, 1] strides=[1, 1]\n"}) {
    EXPECT_EQ(
        add_all(kRows + "%5 = aten::neg(%3)  # Float[4, 64] strides=[64, 1]\n%6 = " + sum + "return %5, %6\n"),
        "10")
        << sum;
  }
}

TEST_F(PointwiseGroups, MayHaveTotalsThatNobodyInThemReads) {
  const std::string chain =
      "%3 = aten::mul.Tensor(%0, %1)  # Float[4, 8] strides=[8, 1]\n"
      "%4 = aten::sum(%3, None)  # Float[] strides=[]\n"
      "%5 = aten::neg(%4)  # Float[] strides=[]\n"
      "%6 = aten::mean(%0, None)  # Float[] strides=[]\n";
  EXPECT_EQ(add_all(chain + "return %5, %6, %4\n"), "1101");
  EXPECT_EQ(program(), "f32 memory 4 slots 4 numbers 0 2 = mul 0 1 ; 3 = copy 0 ;"); // what is added up is not kept
  EXPECT_EQ(group->outputs()[0].total, kernels::Total::kSum);
  EXPECT_EQ(group->outputs()[1].total, kernels::Total::kMean);
  EXPECT_EQ(add_all(chain + "return %3, %4, %5\n"), "1101");
  EXPECT_EQ(program(), "f32 memory 4 slots 5 numbers 0 2 = mul 0 1 ; 3 = copy 2 ; 4 = copy 0 ;"); // nor is the mean
}

TEST_F(PointwiseGroups, TakeNoOtherTotals) {
  const std::string chain = "%3 = aten::mul.Tensor(%0, %1)  # Float[4, 8] strides=[8, 1]\n";
  for (const char* sum :
       {"aten::sum(%3, 7)  # Double[] strides=[]\n",
        "aten::sum(%3[Float[4, 4] strides=[8, 1]], None)  # Float[] strides=[]\n",
        "aten::sum(%1, None)  # Float[] strides=[]\n",
        "aten::sum(%3[Float[8, 4] strides=[1, 8]], None)  # Float[] strides=[]\n"}) {
    EXPECT_EQ(add_all(chain + "%4 = " + sum + "return %3, %4\n"), "10") << sum;
  }
  EXPECT_EQ(add_all("%3 = aten::sum(%0, None)  # Float[] strides=[]\nreturn %3\n"), "0") << "it begins no group";
  EXPECT_EQ(
      add_all(
          "%3 = device_data(3)  # Float[7] strides=[1]\n"
          "%4 = aten::neg(%3)  # Float[7] strides=[1]\n"
          "%5 = aten::sum(%4, None)  # Float[] strides=[]\n"
          "return %5\n"),
      "10")
      << "less than a vector";
}

TEST_F(PointwiseGroups, TheDimensionOfRowsMayGoIfNobodyInTheGroupReadsTheResult) {
  const std::string sum = kRows +
                          "%5 = aten::mul.Tensor(%3, %3)  # Float[4, 64] strides=[64, 1]\n"
                          "%6 = aten::sum.dim_IntList(%5, [-1], False, None)  # Float[4] strides=[1]\n";
  EXPECT_EQ(add_all(sum + "return %6\n"), "11");
  EXPECT_EQ(program(), "f32 memory 2 slots 3 numbers 0 2 = mul 0 0 ; 1 = row_sum 2 ;");
  EXPECT_TRUE(group->outputs()[0].is_for_row);
  EXPECT_EQ(add_all(sum + "%7 = aten::neg(%6)  # Float[4] strides=[1]\nreturn %7\n"), "110");
  // A row that looks like a column.
  EXPECT_EQ(
      add_all(
          "%3 = device_data(3)  # Float[64, 64] strides=[64, 1]\n"
          "%5 = aten::mean.dim(%3, [1], False, None)  # Float[64] strides=[1]\n"
          "%6 = aten::mul.Tensor(%3, %5)  # Float[64, 64] strides=[64, 1]\n"
          "return %6\n"),
      "10");
}

TEST_F(PointwiseGroups, MayHaveLogarithmsOfSumsOfPowers) {
  const std::string call = "aten::logsumexp(%0, [1], True)  # Float[4, 1] strides=[1, 1]\n";
  const std::string rest = "%4 = aten::sub.Tensor(%0, %3, 1)  # Float[4, 8] strides=[8, 1]\nreturn %4\n";
  EXPECT_EQ(add_all("%3 = " + call + rest, /*functions=*/true), "11");
  EXPECT_EQ(program(), "f32 memory 2 slots 4 numbers 1 2 = logsumexp 0 ; 3 = spread 2 ; 1 = sub 0 3 0 ;");
  EXPECT_TRUE(group->has_functions());
  EXPECT_EQ(add_all("%3 = " + call + rest, /*functions=*/false), "01");
  EXPECT_EQ(
      add_all("%3 = aten::logsumexp(%0, [1], False)  # Float[4] strides=[1]\nreturn %3\n", /*functions=*/true),
      "1");
  for (const char* other :
       {"aten::logsumexp(%0, [0], True)  # Float[1, 8] strides=[8, 1]\n",
        "aten::logsumexp(%0, [0, 1], False)  # Float[] strides=[]\n",
        "aten::logsumexp(%0[Float[8, 4] strides=[1, 8]], [1], False)  # Float[8] strides=[1]\n"}) {
    EXPECT_EQ(add_all(std::string("%3 = ") + other + "return %3\n", /*functions=*/true), "0") << other;
  }
}

TEST_F(PointwiseGroups, MayHaveVariances) {
  const std::string text = kRows +
                           "%5 = aten::std.correction(%3, [-1], None, True)  # Float[4, 1] strides=[1, 1]\n"
                           "%6 = aten::var.correction(%3, [1], 0, True)  # Float[4, 1] strides=[1, 1]\n"
                           "%7 = aten::div.Tensor(%3, %5)  # Float[4, 64] strides=[64, 1]\n"
                           "%8 = aten::add.Tensor(%7, %6, 1)  # Float[4, 64] strides=[64, 1]\n"
                           "%9 = aten::var.correction(%3, [1], 2, True)  # Float[4, 1] strides=[1, 1]\n"
                           "%10 = aten::var.correction(%3, [0], 1, True)  # Float[1, 64] strides=[64, 1]\n"
                           "return %8, %9, %10\n";
  EXPECT_EQ(add_all(text, /*functions=*/true), "111100");
  EXPECT_EQ(group->literals(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(add_all(text), "001100") << "functions are not asked for";
}

TEST_F(PointwiseGroups, ShortRowsAreSummedUpElsewhere) {
  EXPECT_EQ(
      add_all(
          "%5 = aten::neg(%0)  # Float[4, 8] strides=[8, 1]\n"
          "%6 = aten::sum.dim_IntList(%5, [1], True, None)  # Float[4, 1] strides=[1, 1]\n"
          "return %5, %6\n"),
      "10");
}

TEST_F(PointwiseGroups, RowsThatDoNotFitIntoATileAreSummedUpElsewhere) {
  EXPECT_EQ(
      add_all(
          "%3 = device_data(3)  # Float[4, 8192] strides=[8192, 1]\n"
          "%5 = aten::neg(%3)  # Float[4, 8192] strides=[8192, 1]\n"
          "%6 = aten::sum.dim_IntList(%5, [1], True, None)  # Float[4, 1] strides=[1, 1]\n"
          "return %5, %6\n"),
      "10");
}

TEST_F(PointwiseGroups, OfRowsReadNothingThatIsNot) {
  EXPECT_EQ(
      add_all(
          kRows + "%5 = aten::sum.dim_IntList(%3, [1], True, None)  # Float[4, 1] strides=[1, 1]\n"
                  "%6 = aten::neg(%5)  # Float[4, 1] strides=[1, 1]\n"
                  "%7 = aten::mul.Tensor(%3, %6)  # Float[4, 64] strides=[64, 1]\n"
                  "%8 = aten::mul.Tensor(%6, %7[Float[4, 1] strides=[64, 1]])  # Float[4, 1] strides=[1, 1]\n"
                  "return %8, %7\n"),
      "1110");
}

// Inputs have an element for each of the group's, so one for each row would be read at the wrong places.
TEST_F(PointwiseGroups, WhatIsMadeForRowsReadsNoOtherInputs) {
  const std::string sum = kRows +
                          "%5 = device_data(5)  # Float[4, 1] strides=[1, 1]\n"
                          "%6 = device_data(6)  # Float[1] strides=[1]\n"
                          "%7 = aten::mul.Tensor(%3, %3)  # Float[4, 64] strides=[64, 1]\n"
                          "%8 = aten::sum.dim_IntList(%7, [1], True, None)  # Float[4, 1] strides=[1, 1]\n";
  EXPECT_EQ(add_all(sum + "%9 = aten::mul.Tensor(%8, %5)  # Float[4, 1] strides=[1, 1]\nreturn %9\n"), "110");
  EXPECT_EQ(add_all(sum + "%9 = aten::mul.Tensor(%8, %6)  # Float[4, 1] strides=[1, 1]\nreturn %9\n"), "111")
      << "the same for all";
}

TEST_F(PointwiseGroups, MayHaveFunctionsOfRows) {
  EXPECT_EQ(
      add_all(
          kRows + "%5 = aten::add.Tensor(%3, %4, 1)  # Float[4, 64] strides=[64, 1]\n"
                  "%6 = aten::_softmax(%5, -1, False)  # Float[4, 64] strides=[64, 1]\n"
                  "%7 = aten::gelu(%6, \"tanh\")  # Float[4, 64] strides=[64, 1]\n"
                  "%8 = aten::sum.dim_IntList(%7, [1], True, None)  # Float[4, 1] strides=[1, 1]\n"
                  "%9 = aten::_softmax_backward_data(%7, %6, 1, 6)  # Float[4, 64] strides=[64, 1]\n"
                  "return %8, %9\n",
          /*functions=*/true),
      "11111");
  EXPECT_EQ(
      program(),
      "f32 memory 4 slots 6 numbers 1 4 = add 0 1 0 ; 4 = softmax 4 ; 5 = gelu_tanh 4 ; 2 = row_sum 5 ; "
      "3 = softmax_backward 5 4 ;");
}

TEST_F(PointwiseGroups, ShortRowsHaveFunctions) {
  EXPECT_EQ(
      add_all(
          "%3 = aten::_log_softmax(%0, 1, False)  # Float[4, 8] strides=[8, 1]\n"
          "%4 = aten::_log_softmax_backward_data(%0, %3, 1, 6)  # Float[4, 8] strides=[8, 1]\n"
          "return %4\n",
          /*functions=*/true),
      "11");
}

TEST_F(PointwiseGroups, TakeNoOtherFunctionsOfRows) {
  for (const char* call :
       {"aten::_softmax(%3, 0, False)  # Float[4, 64] strides=[64, 1]\n",
        "aten::_softmax(%3[Float[64, 4] strides=[1, 64]], 1, False)  # Float[64, 4] strides=[4, 1]\n",
        "aten::_softmax(%3[Float[2, 64] strides=[128, 1]], 1, False)  # Float[2, 64] strides=[64, 1]\n",
        "aten::_softmax(%3[Float[256, 1] strides=[1, 1]], 1, False)  # Float[256, 1] strides=[1, 1]\n",
        "aten::_softmax(%2, 0, False)  # Double[] strides=[]\n",
        "aten::_softmax(%5, 1, True)  # Float[4, 64] strides=[64, 1]\n",
        "aten::_softmax(%6, 1, False)  # Double[4, 64] strides=[64, 1]\n",
        "aten::_softmax(%7, 1, False)  # Float[2, 4097] strides=[4097, 1]\n",
        "aten::_softmax_backward_data(%3, %3, 1, 5)  # Half[4, 64] strides=[64, 1]\n"}) {
    EXPECT_EQ(
        add_all(
            kRows +
                "%5 = device_data(5)  # Half[4, 64] strides=[64, 1]\n"
                "%6 = device_data(6)  # Double[4, 64] strides=[64, 1]\n"
                "%7 = device_data(7)  # Float[2, 4097] strides=[4097, 1]\n"
                "%8 = " +
                call + "return %8\n",
            /*functions=*/true),
        "0")
        << call;
  }
}

TEST_F(PointwiseGroups, TheLongestRowsFitAlone) {
  EXPECT_EQ(
      add_all(
          "%3 = device_data(3)  # Float[2, 4096] strides=[4096, 1]\n"
          "%4 = device_data(4)  # Float[2, 4096] strides=[4096, 1]\n"
          "%5 = aten::_softmax_backward_data(%3, %4, -1, 6)  # Float[2, 4096] strides=[4096, 1]\n"
          "return %5\n",
          /*functions=*/true),
      "1");
  EXPECT_EQ(
      add_all(
          "%3 = device_data(3)  # Float[2, 2048] strides=[2048, 1]\n"
          "%4 = device_data(4)  # Float[2048] strides=[1]\n"
          "%5 = device_data(5)  # Float[2048] strides=[1]\n"
          "%6 = aten::native_layer_norm(%3, [2048], %4, %5, 1e-05)  # Float[2, 2048] strides=[2048, 1]; "
          "Float[2, 1] strides=[1, 1]; Float[2, 1] strides=[1, 1]\n"
          "return %6.0, %6.1, %6.2\n",
          /*functions=*/true),
      "1");
}

const std::string kNormed =
    ")  # Float[4, 64] strides=[64, 1]; Float[4, 1] strides=[1, 1]; Float[4, 1] strides=[1, 1]\n";

TEST_F(PointwiseGroups, LayerNormHasThreeResults) {
  EXPECT_EQ(
      add_all(
          kRows +
              "%5 = aten::neg(%3)  # Float[4, 64] strides=[64, 1]\n"
              "%6 = aten::native_layer_norm(%5, [64], %4, %4, 1e-05" +
              kNormed +
              "%7 = aten::sigmoid(%6.0)  # Float[4, 64] strides=[64, 1]\n"
              "%8 = aten::mul.Tensor(%7, %6.2)  # Float[4, 64] strides=[64, 1]\n"
              "%9 = aten::neg(%6.1)  # Float[4, 1] strides=[1, 1]\n"
              "return %8, %6.2, %6.0, %9\n",
          /*functions=*/true),
      "11111");
  EXPECT_EQ(
      program(),
      "f32 memory 6 slots 9 numbers 1 6 = neg 0 ; 7 = row_center 6 ; 3 = row_rstd 6 7 0 ; 2 = normalize 6 7 3 ; "
      "2 = mul_add 2 1 1 ; 6 = sigmoid 2 ; 8 = spread 3 ; 4 = mul 6 8 ; 5 = row:neg 7 ;");
  const auto outputs = group->outputs();
  ASSERT_EQ(outputs.size(), 4);
  EXPECT_EQ(outputs[0].value.output, 0);
  EXPECT_EQ(outputs[1].value.output, 2);
  EXPECT_FALSE(outputs[0].is_for_row);
  EXPECT_TRUE(outputs[1].is_for_row);
  for (const auto& output : outputs) {
    EXPECT_EQ(output.inputs, (std::vector<uint32_t>{0, 1})) << "if a parameter is lost, all are";
  }
}

TEST_F(PointwiseGroups, LayerNormMayLackParameters) {
  for (const auto& [parameters, expected] :
       {std::pair{"None, None", "2 = row_center 0 ; 3 = row_rstd 0 2 0 ; 1 = normalize 0 2 3 ;"},
        {"%4, None", "3 = row_center 0 ; 4 = row_rstd 0 3 0 ; 2 = normalize 0 3 4 ; 2 = mul 2 1 ;"}}) {
    EXPECT_EQ(
        add_all(
            kRows + "%5 = aten::native_layer_norm(%3, [64], " + parameters + ", 1e-05" + kNormed + "return %5.0\n",
            /*functions=*/true),
        "1");
    EXPECT_NE(program().find(expected), std::string::npos) << program();
  }
}

TEST_F(PointwiseGroups, TakeNoOtherLayerNorms) {
  for (const char* arguments :
       {"%3, [4, 64], None, None, 1e-05)  # Float[4, 64] strides=[64, 1]; Float[1, 1] strides=[1, 1]; "
        "Float[1, 1] strides=[1, 1]\n",
        "%3, [64], None, %4, 1e-05)  # Float[4, 64] strides=[64, 1]; Float[4, 1] strides=[1, 1]; "
        "Float[4, 1] strides=[1, 1]\n",
        "%3, [64], %5[Float[64] strides=[2]], None, 1e-05)  # Float[4, 64] strides=[64, 1]; "
        "Float[4, 1] strides=[1, 1]; Float[4, 1] strides=[1, 1]\n",
        "%5[Float[4, 32] strides=[32, 1]], [32], None, None, 1e-05)  # Float[4, 32] strides=[32, 1]; "
        "Float[4, 1] strides=[1, 1]; Float[4, 1] strides=[1, 1]\n",
        "%5[Float[2, 64] strides=[1, 2]], [64], None, None, 1e-05)  # Float[2, 64] strides=[64, 1]; "
        "Float[2, 1] strides=[1, 1]; Float[2, 1] strides=[1, 1]\n"}) {
    EXPECT_EQ(
        add_all(
            kRows + "%5 = device_data(5)  # Float[128] strides=[1]\n%6 = aten::native_layer_norm(" + arguments +
                "return %6.0\n",
            /*functions=*/true),
        "0")
        << arguments;
  }
}

TEST_F(PointwiseGroups, PowersAreTakenWhoseInstructionIsKnown) {
  for (const auto& [exponent, taken] : {std::pair{"2", "1"}, {"-0.5", "1"}, {"-1", "1"}, {"3.0", "1"}, {"2.5", "0"}}) {
    EXPECT_EQ(
        add_all(
            std::string("%5 = aten::pow.Tensor_Scalar(%0, ") + exponent +
            ")  # Float[4, 8] strides=[8, 1]\n"
            "return %5\n"),
        taken)
        << exponent;
  }
}

// ---- concatenations of rows ----

TEST_F(PointwiseGroups, JoinWhatIsComputedInWindows) {
  graph.emplace(parse(
      kMatrixRowNumber +
      "%3 = device_data(3)  # Float[4, 160] strides=[160, 1]\n"
      "%4 = aten::add.Scalar(%3[Float[4, 96] strides=[160, 1] offset=64], 2, 1)  # Float[4, 96] strides=[96, 1]\n"
      "%5 = aten::cat([%4, %3[Float[4, 64] strides=[160, 1]]], 1)  # Float[4, 160] strides=[160, 1]\n"
      "%6 = aten::mul.Scalar(%5, 3)  # Float[4, 160] strides=[160, 1]\n"
      "return %6\n"));
  group.emplace(*graph);
  std::vector<GraphNode*> nodes;
  for (GraphNode& node : graph->nodes()) {
    if (node.kind() != NodeKind::kDeviceData) {
      nodes.push_back(&node);
    }
  }
  ASSERT_EQ(nodes.size(), 3);
  EXPECT_FALSE(PointwiseGroup(*graph).add(*nodes[1])) << "not without its parts";
  const PointwiseGroup::Part part{nodes[0], {0, 96}};
  ASSERT_TRUE(group->begin_join(*nodes[1], part));
  ASSERT_TRUE(group->add(*nodes[2]));
  EXPECT_TRUE(group->has_rows());
  ASSERT_EQ(group->inputs().size(), 2);
  EXPECT_EQ(group->inputs()[0].window, (kernels::Window{0, 96}));
  EXPECT_EQ(group->inputs()[0].offset, 64);
  EXPECT_EQ(group->inputs()[1].window, (kernels::Window{96, 160}));
  EXPECT_EQ(group->literals(), (std::vector<int64_t>{96}));
  EXPECT_EQ(group->outputs().size(), 1);
  // The column comes after the graph's own numbers.
  EXPECT_EQ(group->numbers().size(), 3);
  EXPECT_EQ(
      program(),
      "f32 memory 3 slots 5 numbers 4 3 = number 0 ; 3 = add 0 3 1 ; 3 = join 3 1 3 ; 4 = number 2 ; 2 = mul 3 4 ;");
}

} // namespace
} // namespace lazyplug
