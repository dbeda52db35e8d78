#include "lowering/calls/runtime_ops.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>
#include <torch/library.h>

namespace lazyplug {
namespace {

at::Tensor iota(c10::IntArrayRef sizes) {
  // A clone, because a view keeps its base alive.
  return at::arange(c10::multiply_integers(sizes), at::kFloat).view(sizes).clone();
}

// ---- ensure_layout ----

TEST(EnsureLayout, KeepsWhatLiesAsPromised) {
  const at::Tensor tensor = iota({2, 3});
  EXPECT_TRUE(ensure_layout(tensor, floats({2, 3})).is_same(tensor));
  const at::Tensor column = iota({2, 1});
  Geometry other_strides = floats({2, 1});
  other_strides.strides = {1, 9};
  const at::Tensor restrided = ensure_layout(column, other_strides);
  EXPECT_EQ(restrided.strides(), c10::IntArrayRef({1, 9}));
  EXPECT_EQ(restrided.data_ptr(), column.data_ptr()) << "strides of size 1 need no copy";
}

TEST(EnsureLayout, RestridesWhatLiesOtherwise) {
  const at::Tensor tensor = iota({3, 2}).t();
  const at::Tensor arranged = ensure_layout(tensor, floats({2, 3}));
  EXPECT_TRUE(arranged.is_contiguous());
  EXPECT_TRUE(at::equal(arranged, tensor));
  EXPECT_NE(arranged.data_ptr(), tensor.data_ptr());
}

TEST(EnsureLayout, ResolvesOffsetsAndBits) {
  const at::Tensor tail = iota({6}).slice(0, 3);
  const at::Tensor moved = ensure_layout(tail, floats({3}));
  EXPECT_EQ(moved.storage_offset(), 0);
  EXPECT_TRUE(at::equal(moved, tail));
  const at::Tensor conjugate = at::conj(at::complex(iota({2}), iota({2})));
  const at::Tensor resolved = ensure_layout(conjugate, Geometry::contiguous(at::kComplexFloat, {2}));
  EXPECT_FALSE(resolved.is_conj());
  EXPECT_TRUE(at::equal(resolved, conjugate));
  const at::Tensor negative = at::_neg_view(iota({2}));
  EXPECT_FALSE(ensure_layout(negative, floats({2})).is_neg());
  EXPECT_TRUE(at::equal(ensure_layout(negative, floats({2})), -iota({2})));
}

TEST(EnsureLayout, AnotherShapeOrTypeIsABug) {
  EXPECT_THROW(ensure_layout(iota({2}), floats({3})), c10::Error);
  EXPECT_THROW(ensure_layout(iota({2}), Geometry::contiguous(at::kInt, {2})), c10::Error);
}

// ---- strided_view ----

TEST(StridedView, SharesTheMemoryOfItsBase) {
  const at::Tensor base = iota({3, 4});
  const at::Tensor expected = base.select(1, 2);
  const at::Tensor view = strided_view(base, floats({3, 4}), geometry_of(expected));
  EXPECT_TRUE(at::equal(view, expected));
  EXPECT_EQ(view.data_ptr(), expected.data_ptr());
}

TEST(StridedView, ArrangesItsBaseFirst) {
  const at::Tensor base = iota({4, 3}).t();
  const at::Tensor expected = base.contiguous().select(1, 2);
  EXPECT_TRUE(at::equal(strided_view(base, floats({3, 4}), geometry_of(expected)), expected));
}

TEST(StridedView, ReadsTheMemoryAsAnotherType) {
  const at::Tensor base = iota({4});
  const at::Tensor ints = strided_view(base, floats({4}), Geometry::contiguous(at::kInt, {4}));
  EXPECT_TRUE(at::equal(ints, base.view(at::kInt)));
  const at::Tensor bytes = strided_view(base, floats({4}), Geometry::contiguous(at::kByte, {16}));
  EXPECT_TRUE(at::equal(bytes, base.view(at::kByte)));
  const at::Tensor complex = strided_view(base, floats({4}), Geometry::contiguous(at::kComplexFloat, {2}));
  EXPECT_TRUE(at::equal(complex, at::view_as_complex(base.view({2, 2}))));
}

TEST(StridedView, CarriesTheBits) {
  const at::Tensor base = at::complex(iota({2}), iota({2}));
  const Geometry layout = geometry_of(base);
  Geometry view = layout;
  view.conj = true;
  EXPECT_TRUE(at::equal(strided_view(base, layout, view), at::conj(base)));
  view.neg = true;
  EXPECT_TRUE(at::equal(strided_view(base, layout, view), -at::conj(base)));
  Geometry number = floats({});
  number.wrapped_number = true;
  const at::Tensor wrapped = strided_view(iota({1}), floats({1}), number);
  EXPECT_EQ(at::result_type(wrapped, at::ones({1}, at::kHalf)), at::kHalf);
}

TEST(Moved, StaysWithinItsMemory) {
  const at::Tensor base = iota({5});
  const auto move = [&](int64_t offset) {
    return moved(strided_view(base, floats({5}), floats({2})), offset, floats({2}).extent_bytes());
  };
  for (const int64_t offset : {0, 3}) {
    EXPECT_TRUE(at::equal(move(offset), base.slice(0, offset, offset + 2)));
  }
  EXPECT_EQ(moved(strided_view(base, floats({5}), floats({0})), 7, 0).storage_offset(), 7) << "has no elements";
  for (const int64_t offset : {int64_t{-1}, int64_t{4}, int64_t{1} << 62, INT64_MAX}) {
    EXPECT_THROW(move(offset), c10::IndexError) << offset;
  }
}

TEST(MakeCpuTensor, HasTheGeometryAndNoMemoryOfItsOwn) {
  const at::Tensor base = iota({4});
  const at::Tensor tensor = make_cpu_tensor(base.storage(), floats({2, 2}));
  EXPECT_TRUE(tensor.is_cpu());
  EXPECT_EQ(tensor.data_ptr(), base.data_ptr());
  EXPECT_EQ(geometry_of(tensor), floats({2, 2}));
}

// ---- own ----

TEST(Own, TakesWhatNobodyElseSees) {
  at::Tensor base = iota({4});
  const void* address = base.data_ptr();
  EXPECT_EQ(own(std::move(base), floats({4})).data_ptr(), address);
}

TEST(Own, CopiesWhatSomebodyElseHolds) {
  const at::Tensor held = iota({4});
  const at::Tensor copy = own(held, floats({4}));
  EXPECT_NE(copy.data_ptr(), held.data_ptr());
  EXPECT_TRUE(at::equal(copy, held));
}

TEST(Own, CopiesWhatIsAViewOfMemoryInUse) {
  const at::Tensor held = iota({2, 2});
  const at::Tensor copy = own(held.view({4}), floats({4}));
  EXPECT_NE(copy.data_ptr(), held.data_ptr());
}

TEST(Own, ArrangesOnceWithoutASecondCopy) {
  const at::Tensor held = iota({3, 2}).t();
  const at::Tensor arranged = own(held, floats({2, 3}));
  EXPECT_TRUE(arranged.is_contiguous());
  EXPECT_TRUE(at::equal(arranged, held));
}

TEST(Empty, HasTheLayout) {
  Geometry layout = floats({2, 3});
  layout.strides = {1, 2};
  EXPECT_EQ(geometry_of(lazyplug::empty(layout)), layout);
}

// ---- generators ----

at::Tensor draw(int64_t seed) {
  return at::empty({8}).uniform_(0, 1, seeded_generator(seed));
}

TEST(SeededGenerator, DependsOnItsSeedAlone) {
  const at::Tensor first = draw(1);
  at::rand({3});
  EXPECT_TRUE(at::equal(first, draw(1)));
  EXPECT_FALSE(at::equal(first, draw(2)));
  EXPECT_TRUE(at::equal(draw(-5), draw(-5)));
}

// ---- as TorchScript ops ----

c10::IValue call_op(const char* name, c10::Stack stack, const char* overload = "") {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).callBoxed(&stack);
  EXPECT_EQ(stack.size(), 1);
  return stack.front();
}

TEST(RuntimeOps, AreTorchScriptOpsOfTheSameMeaning) {
  const std::vector<int64_t> layout = {2, 2};
  const std::vector<int64_t> strides = {2, 1};
  const std::vector<int64_t> column = {2};
  const at::Tensor base = iota({2, 2});
  const at::Tensor view =
      call_op(
          "lazyplug::strided_view",
          {base, layout, strides, static_cast<int64_t>(at::kFloat), column, column, 1, false, true, false})
          .toTensor();
  EXPECT_TRUE(at::equal(view, -base.select(1, 1)));
  EXPECT_EQ(view.storage().data(), base.storage().data());
  const at::Tensor moving =
      call_op(
          "lazyplug::strided_view",
          {base, 1, layout, strides, static_cast<int64_t>(at::kFloat), column, column, false, true, false},
          "moving")
          .toTensor();
  EXPECT_TRUE(at::equal(moving, view));
  EXPECT_TRUE(at::equal(call_op("lazyplug::own", {base, layout, strides}).toTensor(), base));
  EXPECT_EQ(
      geometry_of(call_op("lazyplug::empty", {static_cast<int64_t>(at::kInt), layout, strides}).toTensor()),
      Geometry::contiguous(at::kInt, {2, 2}));
  const at::Tensor random = at::empty({8}).uniform_(0, 1, call_op("lazyplug::generator", {3}).toGenerator());
  EXPECT_TRUE(at::equal(random, draw(3)));
}

} // namespace
} // namespace lazyplug
