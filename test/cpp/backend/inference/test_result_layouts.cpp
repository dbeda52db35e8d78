#include "backend/inference/result_layouts.h"

#include "backend/ops/op_registry.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

using Ints = std::vector<int64_t>;
using Strides = c10::DimVector;

at::Tensor strided(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return at::empty_strided(sizes, strides, at::device(at::kMeta).dtype(at::kFloat));
}

at::Tensor plain(c10::IntArrayRef sizes) {
  return strided(sizes, c10::contiguous_strides(sizes));
}

at::Tensor channels_last(c10::IntArrayRef sizes) {
  return strided(sizes, c10::get_channels_last_strides_2d(sizes));
}

class ResultLayoutsTest : public BackendTest {
 protected:
  // How a result of these sizes lies that a Meta kernel left contiguous. The arguments are the tensors and the others,
  // each in their order.
  static Strides lay_out(
      const char* name,
      const char* overload,
      const std::vector<at::Tensor>& tensors,
      const c10::Stack& others,
      c10::IntArrayRef sizes) {
    const OpInfo& op = op_info(name, overload);
    c10::Stack stack;
    auto tensor = tensors.begin();
    auto other = others.begin();
    for (const ArgInfo& arg : op.args()) {
      stack.push_back(arg.kind == ArgKind::kTensor ? on_device(*tensor++) : *other++);
    }
    c10::Stack results = {plain(sizes)};
    lay_out_as_cpu(read_call(op, stack), stack, tensors, /*knows_loops=*/false, &results);
    return Strides(results[0].toTensor().strides());
  }

  static c10::IValue on_device(const at::Tensor& tensor) {
    return tensor.defined() ? c10::IValue(at::empty_strided(tensor.sizes(), tensor.strides(), on_lazy(at::kFloat)))
                            : c10::IValue();
  }

  static Strides convolve(const at::Tensor& image, const at::Tensor& weight, c10::IntArrayRef sizes) {
    const size_t dims = image.dim() - 2;
    const Ints ones(dims, 1);
    const Ints zeros(dims, 0);
    return lay_out("aten::convolution", "", {image, weight, {}}, {ones, zeros, ones, false, zeros, 1}, sizes);
  }
};

TEST_F(ResultLayoutsTest, LoopsFollowTheirOperandsInTurn) {
  const at::Tensor turned = strided({2, 3}, {1, 2});
  EXPECT_EQ(lay_out("aten::copysign", "Tensor", {turned, plain({2, 3})}, {}, {2, 3}), Strides({1, 2}));
  EXPECT_EQ(lay_out("aten::copysign", "Tensor", {plain({2, 3}), turned}, {}, {2, 3}), Strides({3, 1}));
  EXPECT_EQ(lay_out("aten::elu_backward", "", {turned, turned}, {1, 1, 1, false}, {2, 3}), Strides({1, 2}));
}

TEST_F(ResultLayoutsTest, WhatTheTableDoesNotKnowStaysAsPromised) {
  const at::Tensor turned = strided({2, 3}, {1, 2});
  EXPECT_EQ(lay_out("aten::clone", "", {turned}, {c10::IValue()}, {2, 3}), Strides({3, 1}));
  EXPECT_EQ(lay_out("aten::exp", "", {turned}, {}, {2, 3}), Strides({3, 1})) << "a loop over one tensor";
}

TEST_F(ResultLayoutsTest, LikeAnArgument) {
  const std::vector<at::Tensor> tensors = {strided({2, 3}, {1, 2}), plain({2, 3}), {}};
  EXPECT_EQ(lay_out("aten::binary_cross_entropy", "", tensors, {int64_t{0}}, {2, 3}), Strides({1, 2}));
}

TEST_F(ResultLayoutsTest, InTheFormatOfAnArgument) {
  const c10::Stack padding = {Ints{1, 1, 1, 1}};
  EXPECT_EQ(
      lay_out("aten::reflection_pad2d", "", {channels_last({2, 3, 4, 5})}, padding, {2, 3, 6, 7}),
      Strides({126, 1, 21, 3}));
  EXPECT_EQ(
      lay_out("aten::reflection_pad2d", "", {strided({2, 3, 4, 5}, {1, 2, 6, 24})}, padding, {2, 3, 6, 7}),
      Strides({126, 42, 7, 1}));
}

TEST_F(ResultLayoutsTest, ConvolutionsFollowInputAndWeight) {
  const at::Tensor image = plain({2, 3, 6, 6});
  const at::Tensor weight = plain({4, 3, 3, 3});
  EXPECT_EQ(convolve(image, weight, {2, 4, 4, 4}), Strides({64, 16, 4, 1}));
  EXPECT_EQ(convolve(channels_last({2, 3, 6, 6}), weight, {2, 4, 4, 4}), Strides({64, 1, 16, 4}));
  EXPECT_EQ(convolve(image, channels_last({4, 3, 3, 3}), {2, 4, 4, 4}), Strides({64, 1, 16, 4}));
}

TEST_F(ResultLayoutsTest, ConvolutionsInOneDimensionAreComputedInTwo) {
  EXPECT_EQ(convolve(plain({2, 8, 10}), strided({4, 8, 3}, {24, 1, 8}), {2, 4, 8}), Strides({32, 1, 4}));
  EXPECT_EQ(convolve(strided({2, 8, 10}, {80, 1, 8}), plain({4, 8, 3}), {2, 4, 8}), Strides({32, 8, 1}));
}

} // namespace
} // namespace lazyplug
