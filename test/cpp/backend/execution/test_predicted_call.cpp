#include "backend/execution/predicted_call.h"

#include "backend/inference/read_call.h"
#include "backend/inference/shape_inference.h"
#include "backend/ops/op_registry.h"
#include "test/cpp/backend/backend_test.h"

#include <c10/core/DefaultDtype.h>

namespace lazyplug {
namespace {

class PredictedCallTest : public BackendTest {
 protected:
  static SignaturePtr signature_of(const char* name, const char* overload, const c10::Stack& stack) {
    return infer_shapes(read_call(op_info(name, overload), stack), stack).signature;
  }
  static SignaturePtr add_of(const at::Tensor& a, const c10::IValue& b, const c10::IValue& alpha = 1) {
    return signature_of("aten::add", "Tensor", {a, b, alpha});
  }
  bool fits(const SignaturePtr& signature, const c10::Stack& arguments) {
    PredictedCall call(*signature, context_, context_.device());
    return call.begin() &&
           std::all_of(arguments.begin(), arguments.end(), [&](const auto& value) { return call.add(value); }) &&
           call.is_complete();
  }
  static at::Tensor lazy(c10::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    return at::empty(sizes, on_lazy(dtype));
  }

  const at::Tensor x = lazy({2, 3});
  const at::Tensor y = lazy({2, 3});
};

TEST_F(PredictedCallTest, OtherTensorsAndNumbersOfTheSameKindFit) {
  const SignaturePtr add = add_of(x, y, 2);
  EXPECT_TRUE(fits(add, {x, y, 2}));
  EXPECT_TRUE(fits(add, {y, x, 100}));
  EXPECT_TRUE(fits(add, {lazy({4, 3}).slice(0, 1, 3), x, 2})) << "wherever in its storage it begins";
}

TEST_F(PredictedCallTest, OtherGeometriesDoNot) {
  const SignaturePtr add = add_of(x, y);
  for (const at::Tensor& other : {lazy({3}), lazy({3, 2}).t(), lazy({2, 3}, at::kDouble), at::ones({2, 3})}) {
    EXPECT_FALSE(fits(add, {x, other, 1})) << other.toString() << other.sizes();
  }
  const at::Tensor complex = lazy({2, 3}, at::kComplexFloat);
  EXPECT_FALSE(fits(add_of(complex, complex), {complex, at::conj(complex), 1}));
}

TEST_F(PredictedCallTest, ViewsFitThatNobodyMakes) {
  const auto fits_as = [&](const SignaturePtr& mm, const at::Tensor& a, MatrixView view_of_a, MatrixView view_of_b) {
    PredictedCall call(*mm, context_, context_.device());
    return call.begin() && call.add(a, view_of_a) && call.add(lazy({5, 3}), view_of_b) && call.is_complete();
  };
  const auto kRows = MatrixView::kRows;
  const auto kTransposed = MatrixView::kTransposedRows;
  const at::Tensor batches = lazy({2, 4, 3});
  const SignaturePtr linear = signature_of("aten::mm", "", {batches.view({8, 3}), lazy({5, 3}).t()});
  EXPECT_TRUE(fits_as(linear, batches, kRows, kTransposed));
  EXPECT_TRUE(fits_as(linear, lazy({8, 3}), kRows, kTransposed));
  EXPECT_FALSE(fits_as(linear, batches, kRows, kRows));
  EXPECT_FALSE(fits_as(linear, lazy({2, 3, 4}), kRows, kTransposed));
  EXPECT_FALSE(fits_as(linear, lazy({4, 2, 3}).transpose(0, 1), kRows, kTransposed)) << "its rows are no view";
  EXPECT_FALSE(fits_as(linear, lazy({3, 8}).t(), kRows, kTransposed));
  EXPECT_FALSE(fits_as(linear, lazy({2, 4, 3}, at::kDouble), kRows, kTransposed));
  EXPECT_FALSE(fits_as(linear, lazy({3}), kRows, kTransposed));
  const SignaturePtr gradient = signature_of("aten::mm", "", {lazy({5, 8}).t(), lazy({5, 3})});
  EXPECT_TRUE(fits_as(gradient, lazy({5, 8}), kTransposed, kRows));
  EXPECT_FALSE(fits_as(gradient, lazy({8, 5}), kTransposed, kRows));
  const SignaturePtr empty = signature_of("aten::mm", "", {lazy({2, 0}), lazy({0, 3})});
  PredictedCall call(*empty, context_, context_.device());
  EXPECT_FALSE(call.add(lazy({3, 0}), kRows)) << "no elements tell no rows";
}

TEST_F(PredictedCallTest, OtherDevicesDoNot) {
  const at::Tensor elsewhere = at::empty({2, 3}, at::TensorOptions(lazy_device(1)));
  EXPECT_FALSE(fits(add_of(x, y), {elsewhere, elsewhere, 1}));
}

TEST_F(PredictedCallTest, ADeviceThatIsNamedIsCompared) {
  const auto ones_like = [this](const c10::IValue& device) {
    return c10::Stack{x, c10::IValue(), c10::IValue(), device, c10::IValue(), c10::IValue()};
  };
  const SignaturePtr named = signature_of("aten::ones_like", "", ones_like(lazy_device(0)));
  EXPECT_TRUE(fits(named, ones_like(lazy_device(0))));
  EXPECT_TRUE(fits(named, ones_like(c10::Device(kLazyDevice)))) << "the current one";
  EXPECT_FALSE(fits(named, ones_like(lazy_device(1))));
  EXPECT_FALSE(fits(named, ones_like(c10::Device(c10::kCPU))));
  EXPECT_FALSE(fits(named, ones_like(c10::IValue())));
  EXPECT_FALSE(fits(signature_of("aten::ones_like", "", ones_like(c10::IValue())), ones_like(lazy_device(0))));
}

TEST_F(PredictedCallTest, NumbersOfAnotherTypeOrRangeDoNot) {
  const SignaturePtr add = add_of(x, y, 2);
  for (const c10::IValue& alpha : std::vector<c10::IValue>{2.0, true, 0, -2, 1000, c10::IValue()}) {
    EXPECT_FALSE(fits(add, {x, y, alpha})) << alpha;
  }
}

TEST_F(PredictedCallTest, NumbersOfTheCpuFitIfTheyAreOfTheSameRange) {
  const auto number = [](double value) {
    at::Tensor tensor = at::scalar_tensor(value, at::kDouble);
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
  };
  const SignaturePtr add = add_of(x, number(2));
  EXPECT_TRUE(fits(add, {x, number(100), 1}));
  EXPECT_FALSE(fits(add, {x, number(-2), 1}));
  EXPECT_FALSE(fits(add, {x, y, 1}));
}

TEST_F(PredictedCallTest, ConstantsAndMissingArgumentsMustBeTheSame) {
  const std::vector<int64_t> first = {0};
  const std::vector<int64_t> second = {1};
  const SignaturePtr sum = signature_of("aten::sum", "dim_IntList", {x, first, false, c10::IValue()});
  EXPECT_TRUE(fits(sum, {x, first, false, c10::IValue()}));
  EXPECT_FALSE(fits(sum, {x, second, false, c10::IValue()}));
  EXPECT_FALSE(fits(sum, {x, first, true, c10::IValue()}));
  EXPECT_FALSE(fits(sum, {x, first, false, static_cast<int64_t>(at::kDouble)}));
  const SignaturePtr loss =
      signature_of("aten::multi_margin_loss", "", {x, lazy({2}, at::kLong), 1, 0.0, c10::IValue(), 1});
  EXPECT_TRUE(fits(loss, {x, lazy({2}, at::kLong), 1, 0.0, c10::IValue(), 1}));
  EXPECT_FALSE(fits(loss, {x, lazy({2}, at::kLong), 1, -0.0, c10::IValue(), 1}));
  const SignaturePtr clamp = signature_of("aten::clamp", "", {x, 1, c10::IValue()});
  EXPECT_FALSE(fits(clamp, {x, c10::IValue(), 1}));
}

TEST_F(PredictedCallTest, ListsMustBeAsLong) {
  const SignaturePtr cat = signature_of("aten::cat", "", {std::vector<at::Tensor>{x, y}, 0});
  EXPECT_TRUE(fits(cat, {std::vector<at::Tensor>{y, y}, 0}));
  EXPECT_FALSE(fits(cat, {std::vector<at::Tensor>{x}, 0}));
  EXPECT_FALSE(fits(cat, {std::vector<at::Tensor>{x, y, x}, 0}));
}

TEST_F(PredictedCallTest, WritesThatOverlapDoNotFit) {
  const SignaturePtr add = signature_of("aten::add_", "Tensor", {x, y, 1});
  EXPECT_TRUE(fits(add, {x, y, 1}));
  EXPECT_FALSE(fits(add, {x, x, 1}));
  const at::Tensor memory = lazy({4, 3});
  EXPECT_FALSE(fits(add, {memory.slice(0, 0, 2), memory.slice(0, 1, 3), 1}));
}

TEST_F(PredictedCallTest, IsCompleteOnlyWithAllArguments) {
  EXPECT_FALSE(fits(add_of(x, y), {x, y}));
}

TEST_F(PredictedCallTest, CollectsWhatIsToBeRecorded) {
  const SignaturePtr add = signature_of("aten::add_", "Tensor", {x, y, 2});
  PredictedCall call(*add, context_, context_.device());
  ASSERT_TRUE(call.add(x) && call.add(y) && call.add(at::Scalar(5))) << "unboxed";
  ASSERT_TRUE(call.is_complete());
  ASSERT_EQ(call.tensors().size(), 2);
  EXPECT_EQ(call.tensors()[0].tensor, x.unsafeGetTensorImpl());
  EXPECT_TRUE(call.tensors()[0].written);
  EXPECT_FALSE(call.tensors()[1].written);
  ASSERT_EQ(call.scalars().size(), 1);
  EXPECT_EQ(call.scalars()[0].toInt(), 5);
}

TEST_F(PredictedCallTest, SomeSignaturesPredictNothing) {
  const SignaturePtr add = add_of(x, y);
  {
    const ScopedFlag<bool> off(config().reuse_ir, false);
    EXPECT_FALSE(fits(add, {x, y, 1}));
  }
  c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
  EXPECT_FALSE(fits(add, {x, y, 1}));
  c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
  EXPECT_TRUE(fits(add, {x, y, 1}));
  add->superseded.value = true;
  EXPECT_FALSE(fits(add, {x, y, 1}));
}

TEST_F(PredictedCallTest, RandomCallsDrawASeedOfTheirGenerator) {
  const c10::Stack arguments = {x, 0.0, 1.0, c10::IValue()};
  const SignaturePtr uniform = signature_of("aten::uniform_", "", arguments);
  EXPECT_TRUE(fits(uniform, arguments));
  at::Generator own = at::globalContext().defaultGenerator(lazy_device(0)).clone();
  EXPECT_TRUE(fits(uniform, {x, 0.0, 1.0, own}));
  EXPECT_FALSE(fits(uniform, {x, 0.0, 1.0, at::globalContext().defaultGenerator(at::kCPU)})) << "an error";
  const auto draw = [&] {
    PredictedCall call(*uniform, context_, context_.device());
    EXPECT_TRUE(call.begin() && call.add(x) && call.add(0.0) && call.add(1.0) && call.add(c10::IValue(own)));
    call.draw_seed();
    return call.scalars().back().toInt();
  };
  own.set_current_seed(7);
  const int64_t first = draw();
  EXPECT_NE(draw(), first);
  own.set_current_seed(7);
  EXPECT_EQ(draw(), first);
}

} // namespace
} // namespace lazyplug
