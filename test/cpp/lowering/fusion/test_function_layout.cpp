#include "lowering/fusion/function_layout.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

using Dims = std::vector<int64_t>;

class FunctionLayoutTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_functions()) {
      GTEST_SKIP() << "PyTorch uses neither AVX2 nor AVX-512 here, so there are no functions of ours";
    }
  }
  static FunctionLayout begin(const char* op) {
    return FunctionLayout(*find_function(make_op(op), {}));
  }
  static FunctionLayout::Tensor
  dense(const Dims& sizes, const Dims& strides, c10::ScalarType dtype = c10::ScalarType::Float) {
    return {dtype, sizes, strides, /*is_dense=*/true};
  }
  static FunctionLayout::Tensor part(const Dims& sizes, const Dims& strides) {
    return {c10::ScalarType::Float, sizes, strides, /*is_dense=*/false};
  }

  const Dims sizes_{4, 128};
  const Dims strides_{128, 1};
  const Dims apart_{256, 1};
  const Dims transposed_{1, 4};
  const Dims row_{128};
  const Dims one_{1};
  const Dims two_{2};
};

TEST_F(FunctionLayoutTest, ResultsLieAsTheFirstTensorDoes) {
  FunctionLayout layout = begin("aten::silu_backward");
  EXPECT_TRUE(layout.add(dense(sizes_, transposed_)));
  EXPECT_TRUE(layout.add(dense(sizes_, transposed_)));
  EXPECT_EQ(layout.result().strides, c10::DimVector(transposed_));
  EXPECT_FALSE(layout.add(dense(sizes_, strides_))) << "lies otherwise";
}

TEST_F(FunctionLayoutTest, PartsOfRowsLieBesideWhatIsContiguous) {
  FunctionLayout layout = begin("aten::silu_backward");
  EXPECT_TRUE(layout.add(part(sizes_, apart_)));
  EXPECT_TRUE(layout.add(dense(sizes_, strides_)));
  EXPECT_EQ(layout.result().strides, c10::DimVector(strides_));
  FunctionLayout other = begin("aten::silu_backward");
  EXPECT_TRUE(other.add(dense(sizes_, transposed_)));
  EXPECT_FALSE(other.add(part(sizes_, apart_)));
}

TEST_F(FunctionLayoutTest, DtypesAreThoseOfTheFunctionAndOne) {
  EXPECT_FALSE(begin("aten::exp").add(dense(sizes_, strides_, c10::ScalarType::Long)));
  FunctionLayout layout = begin("aten::silu_backward");
  EXPECT_TRUE(layout.add(dense(sizes_, strides_)));
  EXPECT_FALSE(layout.add(dense(sizes_, strides_, c10::ScalarType::Half)));
}

TEST_F(FunctionLayoutTest, RowsAreInOrder) {
  EXPECT_TRUE(begin("aten::_softmax").add(dense(sizes_, strides_)));
  EXPECT_FALSE(begin("aten::_softmax").add(dense(sizes_, transposed_)));
  EXPECT_FALSE(begin("aten::_softmax").add(part(sizes_, apart_)));
}

TEST_F(FunctionLayoutTest, WeightsAreRowsAndComeBeforeBiases) {
  FunctionLayout layout = begin("aten::native_layer_norm");
  EXPECT_TRUE(layout.add(dense(sizes_, strides_)));
  FunctionLayout without = layout;
  EXPECT_TRUE(layout.add_row(dense(row_, one_)));
  EXPECT_TRUE(layout.add_row(dense(row_, one_)));
  EXPECT_EQ(layout.num_rows(), 2);
  EXPECT_FALSE(layout.add_row(part(row_, two_))) << "with gaps";
  without.add_missing_row();
  EXPECT_FALSE(without.add_row(dense(row_, one_)));
}

} // namespace
} // namespace lazyplug
