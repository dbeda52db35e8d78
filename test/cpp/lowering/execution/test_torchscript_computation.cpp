#include "lowering/execution/torchscript_computation.h"

#include "test/cpp/lowering/computation_test.h"

namespace lazyplug {
namespace {

using TorchScriptComputationTest = PairTest<testing::Test>;

TEST_F(TorchScriptComputationTest, OneCompilationRunsManyTimes) {
  const Value sum = add_add(trace, {a}, {a}, kPair);
  const auto computation = compile(trace, sum);
  for (float value : {1.F, 2.F}) {
    const auto outputs = computation->run({{at::full({2}, value)}, {c10::IValue(10)}}).outputs;
    ASSERT_EQ(outputs.size(), 1);
    EXPECT_TRUE(at::equal(outputs[0].tensor, at::full({2}, 11 * value)));
    EXPECT_FALSE(outputs[0].error);
  }
}

TEST_F(TorchScriptComputationTest, TextIsTheGraph) {
  const auto computation = compile(trace, add_relu(trace, {a}, kPair));
  EXPECT_NE(computation->to_string().find("aten::relu"), std::string::npos);
}

} // namespace
} // namespace lazyplug
