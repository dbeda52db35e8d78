#include "lowering/nodes/tile_kernel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lowering/calls/runtime_ops.h"
namespace lazyplug {
namespace {

c10::IValue numbers(std::initializer_list<c10::IValue> values, const c10::TypePtr& type = c10::NumberType::get()) {
  c10::impl::GenericList list(type);
  for (const c10::IValue& value : values) {
    list.push_back(value);
  }
  return list;
}

c10::IValue lists(std::initializer_list<c10::IValue> values) {
  return numbers(values, c10::ListType::create(c10::NumberType::get()));
}

std::vector<at::Tensor> run(const char* text, c10::List<at::Tensor> tensors, c10::IValue singles, c10::IValue by_row) {
  c10::Stack stack{tensors, std::move(singles), std::move(by_row)};
  TileKernel(*kernels::parse(text), 2)(stack);
  EXPECT_EQ(stack.size(), 1);
  return stack[0].toTensorVector();
}

TEST(TileKernelTest, WritesWhatItIsGivenAndReturnsWhatIsNew) {
  const at::Tensor a = at::ones({3, 2}).t();
  const at::Tensor b = at::ones({});
  const auto fresh =
      run("f32 memory 2 slots 2 numbers 2 0 = add_number 0 0 ; 1 = mul_number 0 1 ;",
          c10::List<at::Tensor>({a, b}),
          numbers({2.5}),
          lists({numbers({int64_t{2}, 3.0})}));
  EXPECT_TRUE(at::equal(a, at::full({2, 3}, 3.5F)));
  ASSERT_EQ(fresh.size(), 2);
  EXPECT_TRUE(at::equal(fresh[0], at::full({2, 3}, 7.F)));
  EXPECT_EQ(fresh[0].strides(), a.strides());
  EXPECT_TRUE(at::equal(fresh[1], at::full({}, 10.5F)));
}

TEST(TileKernelTest, NumbersThatOverflowRaiseWhereEagersDo) {
  const c10::List<at::Tensor> tensors({at::ones({1}), at::ones({1}), at::ones({1}), at::ones({1})});
  try {
    run("f32 memory 2 slots 2 numbers 1 0 = add 0 1 0 ;", tensors, numbers({1e40}), lists({}));
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(
        std::string(error.what()).find("value cannot be converted to type float without overflow"),
        std::string::npos);
  }
  EXPECT_EQ(tensors.get(0).item<float>(), 1);
  run("f32 memory 2 slots 2 numbers 1 0 = mul_number 0 0 ;", tensors, numbers({1e40}), lists({}));
  EXPECT_TRUE(at::isinf(tensors.get(0)).item<bool>());
}

// As PyTorch does: a number that is added, or multiplies in place, but no divisor, nor other factors.
TEST(TileKernelTest, SomeNumbersAreRoundedForNarrowFloats) {
  constexpr double kNumber = 1.2345678;
  constexpr const char* kText =
      "f32 memory 4 slots 4 numbers 4 1 = mul_number 0 3 ; 1 = to_bfloat16 1 ; 2 = div_number 0 2 ; "
      "2 = to_bfloat16 2 ; 3 = add_number 0 1 ; 3 = to_bfloat16 3 ; 0 = mul_number 0 0 ; 0 = to_bfloat16 0 ;";
  const auto tensors = [] {
    at::manual_seed(0);
    return c10::List<at::Tensor>({at::randn({3, 33}, at::kBFloat16).t(), at::randn({7}, at::kBFloat16)});
  };
  const c10::List<at::Tensor> actual = tensors();
  const auto fresh = run(kText, actual, numbers({kNumber, kNumber, kNumber, kNumber}), lists({}));
  ASSERT_EQ(fresh.size(), 6);
  std::vector<at::Tensor> expected = tensors().vec();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(fresh[i], expected[i].mul(kNumber)));
    EXPECT_TRUE(at::equal(fresh[2 + i], expected[i].div(kNumber)));
    EXPECT_TRUE(at::equal(fresh[4 + i], expected[i].add(kNumber)));
    EXPECT_TRUE(at::equal(actual.get(i), expected[i].mul_(at::Scalar(kNumber))));
    EXPECT_EQ(fresh[i].scalar_type(), at::kBFloat16);
  }
}

TEST(TileKernelTest, RefusesLayoutsThatDiffer) {
  const c10::List<at::Tensor> tensors({at::ones({2, 2}), at::ones({1}), at::ones({2, 2}).t(), at::ones({1})});
  EXPECT_THROW(run("f32 memory 2 slots 2 numbers 0 0 = mul 0 1 ;", tensors, numbers({}), lists({})), c10::Error);
}

TEST(TileKernelTest, IsAnOpOfTorchScripts) {
  const at::Tensor a = at::ones({2});
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow("lazyplug::tile_program", "");
  c10::Stack stack{
      c10::List<at::Tensor>({a}),
      numbers({2.0}),
      lists({}),
      int64_t{1},
      "f32 memory 1 slots 1 numbers 1 0 = mul_number 0 0 ;"};
  op.callBoxed(stack);
  EXPECT_TRUE(at::equal(a, at::full({2}, 2.F)));
  stack = {c10::List<at::Tensor>({a}), numbers({}), lists({}), int64_t{1}, "nonsense"};
  EXPECT_THROW(op.callBoxed(stack), c10::Error);
}

// Flat: the numbers of all rows, then for each of the others one for each row.
void update(const char* text, c10::List<at::Tensor> written, c10::List<at::Tensor> read, c10::IValue flat) {
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow(kTileUpdate, "");
  c10::Stack stack{std::move(written), std::move(read), std::move(flat), int64_t{2}, text};
  op.callBoxed(stack);
  EXPECT_TRUE(stack.empty());
}

TEST(TileUpdateTest, WritesSomeListsAndReadsOthers) {
  constexpr const char* kText = "f32 memory 2 slots 2 numbers 2 0 = add 0 1 0 ; 0 = mul_number 0 1 ;";
  const at::Tensor a = at::ones({3});
  const at::Tensor b = at::ones({});
  const c10::List<at::Tensor> read({at::ones({3}), at::full({}, 2.F)});
  update(kText, c10::List<at::Tensor>({a, b}), read, numbers({0.5, 2.0}));
  EXPECT_TRUE(at::equal(a, at::full({3}, 3.F)));
  EXPECT_TRUE(at::equal(b, at::full({}, 4.F)));
  update(kText, c10::List<at::Tensor>({a, b}), read, numbers({0.0, 2.0, 10.0}));
  EXPECT_TRUE(at::equal(a, at::full({3}, 6.F)));
  EXPECT_TRUE(at::equal(b, at::full({}, 40.F)));
}

} // namespace
} // namespace lazyplug
