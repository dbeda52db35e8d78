#include "lowering/ir/geometry.h"

#include "test/cpp/lowering/programs.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

namespace lazyplug {
namespace {

Geometry strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset = 0) {
  Geometry geometry;
  geometry.dtype = at::kFloat;
  geometry.sizes = sizes;
  geometry.strides = strides;
  geometry.offset = offset;
  return geometry;
}

TEST(Geometry, DescribesATensor) {
  const Geometry column = geometry_of(at::zeros({3, 4}).select(1, 2));
  EXPECT_EQ(column, strided({3}, {4}, 2));
  EXPECT_EQ(column.numel(), 3);
  EXPECT_EQ(column.itemsize(), 4);
  EXPECT_FALSE(column.has_bits());
}

TEST(Geometry, KeepsTheBitsOfViews) {
  const at::Tensor complex = at::zeros({2}, at::kComplexFloat);
  EXPECT_TRUE(geometry_of(at::conj(complex)).conj);
  EXPECT_TRUE(geometry_of(at::imag(at::conj(complex))).neg);
  EXPECT_TRUE(geometry_of(at::_neg_view(complex)).has_bits());
  at::Tensor number = at::zeros({});
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  EXPECT_TRUE(geometry_of(number).wrapped_number);
}

TEST(Geometry, ContiguousStridesAreThoseOfATensor) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{}, {5}, {2, 3, 4}, {2, 1, 4}, {2, 0, 4}}) {
    EXPECT_EQ(Geometry::contiguous(at::kFloat, sizes), geometry_of(at::empty(sizes)));
  }
}

TEST(Geometry, OnlyExactStridesAreContiguous) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{}, {3}, {2, 3}, {2, 0, 3}, {1, 1}}) {
    EXPECT_TRUE(Geometry::contiguous(c10::ScalarType::Float, sizes).is_contiguous());
  }
  Geometry other = Geometry::contiguous(c10::ScalarType::Float, {1, 3});
  other.strides[0] = 5;
  EXPECT_FALSE(other.is_contiguous()) << "of one row, whose stride does not matter";
  EXPECT_FALSE(Geometry::of(*at::empty({3, 2}).t().unsafeGetTensorImpl()).is_contiguous());
}

TEST(Geometry, ExtentReachesTheLastElement) {
  EXPECT_EQ(strided({}, {}).extent_bytes(), 4);
  EXPECT_EQ(strided({3}, {4}, 2).extent_bytes(), (2 + 8 + 1) * 4);
  EXPECT_EQ(strided({3, 0}, {4, 1}, 2).extent_bytes(), 0);
  EXPECT_EQ(strided({1000}, {0}).extent_bytes(), 4);
}

TEST(Geometry, DenseMeansNoGapsAndNoOverlaps) {
  EXPECT_TRUE(strided({}, {}).is_dense());
  EXPECT_TRUE(strided({2, 3}, {3, 1}).is_dense());
  EXPECT_TRUE(strided({2, 3}, {1, 2}).is_dense());
  EXPECT_TRUE(strided({2, 1}, {1, 77}).is_dense());
  EXPECT_TRUE(strided({2, 0}, {9, 9}).is_dense());
  EXPECT_FALSE(strided({2, 3}, {4, 1}).is_dense()) << "gaps";
  EXPECT_FALSE(strided({2, 3}, {1, 1}).is_dense()) << "overlaps";
  EXPECT_FALSE(strided({2}, {0}).is_dense()) << "expanded";
}

TEST(Geometry, StridesOfSingleElementsDoNotMatter) {
  EXPECT_TRUE(strided({2, 1}, {1, 1}).same_memory({2, 1}, {1, 9}));
  EXPECT_TRUE(strided({2, 0}, {1, 1}).same_memory({2, 0}, {7, 9}));
  EXPECT_FALSE(strided({2, 2}, {2, 1}).same_memory({2, 2}, {1, 2}));
  EXPECT_FALSE(strided({2, 1}, {1, 1}).same_memory({1, 2}, {1, 1}));
}

TEST(Geometry, ResultsHaveTheUsualStridesWhereTheseSayNothing) {
  const auto expect_as_computed = [](const at::Tensor& tensor) {
    const at::Tensor result = tensor.exp();
    EXPECT_EQ(c10::IntArrayRef(strides_of_result(tensor.sizes(), tensor.strides())), result.strides());
  };
  const at::Tensor x = at::ones({4096});
  expect_as_computed(x.as_strided({2, 3}, {3, 1}));
  expect_as_computed(x.as_strided({2, 3}, {1, 2}));
  expect_as_computed(x.as_strided({2, 1, 3, 5}, {15, 1, 5, 1}));
  expect_as_computed(x.as_strided({4, 12, 1, 1}, {12, 1, 12, 12}));
  expect_as_computed(x.as_strided({1, 12, 2, 3}, {7, 1, 36, 12}));
  expect_as_computed(x.as_strided({2, 5, 1, 3}, {1, 2, 7, 10}));
  expect_as_computed(x.as_strided({2, 4, 1, 1, 1}, {4, 1, 4, 4, 4}));
}

TEST(Geometry, EveryFieldMattersToEqualityHashAndMatches) {
  const at::Tensor tensor = at::zeros({2, 2});
  const Geometry base = geometry_of(tensor);
  EXPECT_TRUE(base.matches(*tensor.unsafeGetTensorImpl()));
  std::vector<Geometry> others(7, base);
  others[0].dtype = at::kInt;
  others[1].conj = true;
  others[2].neg = true;
  others[3].wrapped_number = true;
  others[4].offset = 1;
  others[5].sizes = {2, 1};
  others[6].strides = {1, 2};
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_FALSE(others[i] == base) << i;
    EXPECT_FALSE(others[i].matches(*tensor.unsafeGetTensorImpl())) << i;
    EXPECT_NE(hash_combine(Hash128(), others[i]), hash_combine(Hash128(), base)) << i;
  }
}

TEST(Geometry, HashDependsOnTheSeed) {
  const Geometry geometry = strided({2}, {1});
  EXPECT_EQ(hash_combine(Hash128(), geometry), hash_combine(Hash128(), strided({2}, {1})));
  EXPECT_NE(hash_combine(Hash128{1, 1}, geometry), hash_combine(Hash128(), geometry));
}

TEST(Geometry, TextNamesWhatIsNotTheDefault) {
  EXPECT_EQ(to_string(strided({2, 3}, {3, 1})), "Float[2, 3] strides=[3, 1]");
  Geometry geometry = strided({2}, {1}, 5);
  geometry.conj = geometry.neg = geometry.wrapped_number = true;
  EXPECT_EQ(to_string(geometry), "Float[2] strides=[1] offset=5 conj neg number");
}

TEST(View, WhereAMovingOneBeginsIsNoPartOfIt) {
  View view(strided({2}, {1}, 5));
  View other(strided({2}, {1}, 6));
  EXPECT_FALSE(view.moves());
  EXPECT_FALSE(view == other);
  EXPECT_EQ(hash_combine(Hash128(), view), hash_combine(Hash128(), strided({2}, {1}, 5)));
  EXPECT_NE(hash_combine(Hash128(), view), hash_combine(Hash128(), other));
  view.offset_scalar = other.offset_scalar = 3;
  EXPECT_TRUE(view.moves());
  EXPECT_TRUE(view == other);
  EXPECT_EQ(hash_combine(Hash128(), view), hash_combine(Hash128(), other));
  EXPECT_NE(hash_combine(Hash128(), view), hash_combine(Hash128(), strided({2}, {1}, 3))) << "a scalar is no offset";
  EXPECT_EQ(to_string(other), "Float[2] strides=[1] at=6");
  other.offset_scalar = 4;
  EXPECT_FALSE(view == other);
  EXPECT_NE(hash_combine(Hash128(), view), hash_combine(Hash128(), other));
  other.offset_scalar = 3;
  other.strides = {2};
  EXPECT_FALSE(view == other);
}

TEST(Geometry, OfAStorageIsTheTensorsIfItCoversIt) {
  const auto of_storage = [](const at::Tensor& tensor) {
    return Geometry::of_storage(*tensor.unsafeGetTensorImpl(), tensor.storage().nbytes());
  };
  const at::Tensor x = at::ones({2, 3});
  EXPECT_EQ(of_storage(x.t()), Geometry::of(*x.t().unsafeGetTensorImpl()));
  EXPECT_EQ(of_storage(x[1]), Geometry::contiguous(at::kFloat, {6}));
  EXPECT_EQ(of_storage(x.expand({2, 2, 3})), Geometry::contiguous(at::kFloat, {6}));
  const at::Tensor bytes = at::ones({7}, at::kByte);
  at::Tensor view = at::empty({0}, at::kFloat).set_(bytes.storage(), 0, {1}, {1});
  EXPECT_EQ(of_storage(view), Geometry::contiguous(at::kByte, {7}));
}

} // namespace
} // namespace lazyplug
