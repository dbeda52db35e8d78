#include "lowering/calls/indexed_rows.h"

#include <ATen/ATen.h>

#include "lowering/calls/plain_tensors.h"
#include "lowering/nodes/exact_kernels.h"
#include "test/cpp/lowering/exact_call.h"
#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

c10::Stack index_call(const at::Tensor& self, const std::vector<std::optional<at::Tensor>>& indices) {
  return {self, c10::List<std::optional<at::Tensor>>(indices)};
}

// Whether the rows are taken here, and then as by PyTorch.
bool takes_rows_of(const at::Tensor& self, const std::vector<std::optional<at::Tensor>>& indices) {
  const OpInfo& op = make_op("aten::index", "Tensor");
  c10::Stack ours = index_call(self, indices);
  if (!run_exact_kernel(op, ours)) {
    EXPECT_EQ(ours.size(), 2);
    return false;
  }
  c10::Stack expected = index_call(self, indices);
  op.handle().callBoxed(expected);
  EXPECT_EQ(ours.size(), 1);
  EXPECT_TRUE(has_same_bits(ours[0].toTensor(), expected[0].toTensor())) << self.sizes();
  return true;
}

at::Tensor numbers(std::vector<int64_t> values) {
  return at::tensor(values);
}

// Whether they are put here, and then as by PyTorch.
bool puts_rows_of(
    const at::Tensor& self,
    const std::vector<std::optional<at::Tensor>>& indices,
    const at::Tensor& values,
    bool accumulates = false) {
  const OpInfo& op = make_op("aten::index_put_");
  const auto call = [&](const at::Tensor& written) {
    c10::Stack stack = index_call(written, indices);
    stack.insert(stack.end(), {values, accumulates});
    return stack;
  };
  const at::Tensor written = self.clone();
  c10::Stack ours = call(written);
  if (!run_exact_kernel(op, ours)) {
    EXPECT_EQ(ours.size(), 4);
    EXPECT_TRUE(written.equal(self)) << "it has written";
    return false;
  }
  const at::Tensor by_pytorch = self.clone();
  c10::Stack expected = call(by_pytorch);
  op.handle().callBoxed(expected);
  EXPECT_EQ(ours.size(), 1);
  EXPECT_TRUE(ours[0].toTensor().is_same(written));
  EXPECT_TRUE(has_same_bits(written, by_pytorch)) << self.sizes();
  return true;
}

const std::vector<int64_t> kSizes[] = {{5}, {5, 1}, {5, 3}, {5, 2, 4}, {5, 1, 7}};
const at::ScalarType kDtypes[] =
    {at::kFloat, at::kDouble, at::kHalf, at::kLong, at::kByte, at::kBool, at::kComplexFloat};

TEST(IndexedRowsTest, AreThoseOfPyTorch) {
  for (const auto dtype : kDtypes) {
    for (const std::vector<int64_t>& sizes : kSizes) {
      const at::Tensor self = at::arange(c10::multiply_integers(sizes)).view(sizes).remainder(251).to(dtype);
      EXPECT_TRUE(takes_rows_of(self, {numbers({0, 4, 4, -1, -5, 2})})) << dtype << sizes;
      EXPECT_TRUE(takes_rows_of(self, {numbers({3})})) << dtype << sizes;
      for (int64_t num_dims = 1; num_dims <= self.dim(); ++num_dims) {
        const at::Tensor mask = at::rand(at::IntArrayRef(sizes).slice(0, num_dims)) > 0.5;
        mask.view({-1})[0] = true;
        EXPECT_TRUE(takes_rows_of(self, {mask})) << dtype << sizes;
      }
    }
  }
}

TEST(IndexedRowsTest, SoAreAll) {
  const at::Tensor self = at::rand({6, 3});
  EXPECT_TRUE(takes_rows_of(self, {at::ones({6}, at::kBool)}));
  EXPECT_TRUE(takes_rows_of(self, {at::ones({6, 3}, at::kBool)}));
}

TEST(IndexedRowsTest, TruthsMayBeAnyBytes) {
  const at::Tensor self = at::rand({5, 3});
  const at::Tensor mask = at::tensor({2, 0, 255, 1, 128}, at::kByte).view(at::kBool);
  EXPECT_TRUE(takes_rows_of(self, {mask}));
  EXPECT_TRUE(puts_rows_of(self, {mask}, at::rand({4, 3})));
}

TEST(IndexedRowsTest, SoAreMany) {
  EXPECT_TRUE(takes_rows_of(at::rand({3'000, 70}), {at::randint(3'000, {5'000})}));
  EXPECT_TRUE(takes_rows_of(at::rand({100'000}), {at::randint(100'000, {200'000})}));
}

// All ways to index neighboring dimensions, from the one at `first` on, by numbers of these sizes.
std::vector<std::optional<at::Tensor>>
indices_of(const at::Tensor& self, int64_t first, int64_t count, at::IntArrayRef sizes) {
  std::vector<std::optional<at::Tensor>> indices(first);
  for (int64_t dim = first; dim < first + count; ++dim) {
    indices.emplace_back(at::randint(-self.size(dim), self.size(dim), sizes, at::kLong));
  }
  return indices;
}

TEST(IndexedRowsTest, MayBeOfAnyNeighboringDimensions) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kByte, at::kComplexDouble}) {
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{5, 3}, {4, 1, 6}, {2, 3, 4, 5}}) {
      const at::Tensor self = at::arange(c10::multiply_integers(sizes)).view(sizes).remainder(251).to(dtype);
      for (int64_t first = 0; first < self.dim(); ++first) {
        for (int64_t count = 1; first + count <= self.dim(); ++count) {
          for (const std::vector<int64_t>& of :
               std::vector<std::vector<int64_t>>{{1}, {7}, {2, 3}, {3, 1}, {1, 2, 2}}) {
            const auto indices = indices_of(self, first, count, of);
            EXPECT_TRUE(takes_rows_of(self, indices)) << dtype << sizes << first << count << of;
            const at::Tensor values = self.index(c10::List<std::optional<at::Tensor>>(indices)).flip(0).contiguous();
            EXPECT_TRUE(puts_rows_of(self, indices, values)) << dtype << sizes << first << count << of;
            EXPECT_TRUE(puts_rows_of(self, indices, at::ones({}, dtype))) << dtype << sizes << first << count << of;
          }
        }
      }
    }
  }
}

TEST(IndexedRowsTest, NumbersMayHaveGaps) {
  const at::Tensor self = at::rand({6, 3});
  const at::Tensor column = at::randint(-3, 3, {7, 2}, at::kLong).select(1, 0);
  EXPECT_TRUE(takes_rows_of(self, {column}));
  EXPECT_TRUE(takes_rows_of(self, {column, at::randint(3, {7}, at::kLong)}));
  EXPECT_TRUE(takes_rows_of(self, {std::nullopt, column.slice(0, 0, 7, 3)}));
  EXPECT_TRUE(puts_rows_of(self, {column}, at::rand({7, 3})));
  EXPECT_TRUE(takes_rows_of(self, {numbers({2}).expand({4})})) << "one after the other, all the same";
}

TEST(IndexedRowsTest, NumbersFillWhereAMaskIsTrue) {
  for (const auto dtype : {at::kByte, at::kHalf, at::kInt, at::kDouble, at::kComplexDouble}) {
    for (const int64_t size : {1, 7, 8, 64, 1'003}) {
      const at::Tensor self = at::arange(size).remainder(251).to(dtype);
      for (const at::Tensor& mask :
           {at::arange(size) > size / 2, at::rand({size}) > 0.5, at::ones({size}, at::kBool)}) {
        EXPECT_EQ(puts_rows_of(self, {mask}, at::ones({}, dtype)), mask.any().item<bool>()) << dtype << size;
      }
    }
  }
  const at::Tensor bytes = at::arange(300).remainder(3).to(at::kByte);
  EXPECT_TRUE(puts_rows_of(at::rand({300}), {bytes.view(at::kBool)}, at::ones({}))) << "truths of any bytes";
}

TEST(IndexedRowsTest, LeavesTheRestToPyTorch) {
  const at::Tensor self = at::rand({6, 3});
  EXPECT_FALSE(takes_rows_of(self.t(), {numbers({0})})) << "other strides";
  EXPECT_FALSE(takes_rows_of(self, {numbers({0, 1, 2, 0}).view({2, 2}).t()})) << "a matrix of other strides";
  EXPECT_FALSE(takes_rows_of(self, {numbers({0, 1, 2}).view({3, 1}), numbers({0, 1})})) << "broadcast";
  EXPECT_FALSE(takes_rows_of(self, {std::nullopt, at::ones({3}, at::kBool)})) << "a mask of another dimension";
  EXPECT_FALSE(takes_rows_of(self, {at::ones({6}, at::kBool), numbers({0})})) << "a mask and numbers";
  EXPECT_FALSE(takes_rows_of(self, {numbers({0}).to(at::kInt)})) << "of another dtype";
  EXPECT_FALSE(takes_rows_of(at::rand({4, 5, 6}), {numbers({0}), std::nullopt, numbers({1})})) << "not neighbors";
  EXPECT_FALSE(takes_rows_of(self, {at::zeros({6}, at::kBool)})) << "nothing";
  EXPECT_FALSE(takes_rows_of(at::rand({6}, at::kComplexFloat).conj(), {numbers({1})})) << "conjugated";
  EXPECT_FALSE(takes_rows_of(at::rand({200, 200}), {at::rand({200}) > 0.5})) << "for several threads";
}

TEST(IndexedRowsTest, ArePutAsByPyTorch) {
  for (const auto dtype : kDtypes) {
    for (const std::vector<int64_t>& sizes : kSizes) {
      const at::Tensor self = at::arange(c10::multiply_integers(sizes)).view(sizes).remainder(251).to(dtype);
      const at::Tensor index = numbers({0, 4, 4, -1, 2});
      EXPECT_TRUE(puts_rows_of(self, {index}, self.flip(0))) << dtype << sizes << ": the last one stays";
      EXPECT_TRUE(puts_rows_of(self, {index}, at::ones({}, dtype))) << dtype << sizes;
      for (int64_t num_dims = 1; num_dims <= self.dim(); ++num_dims) {
        const at::Tensor mask = at::rand(at::IntArrayRef(sizes).slice(0, num_dims)) > 0.5;
        mask.view({-1})[0] = true;
        EXPECT_TRUE(puts_rows_of(self, {mask}, at::ones({1}, dtype))) << dtype << sizes;
        EXPECT_TRUE(puts_rows_of(self, {mask}, self.flip(0).index({mask}).contiguous())) << dtype << sizes;
      }
    }
  }
}

TEST(IndexedRowsTest, LeavesOtherWritesToPyTorch) {
  const at::Tensor self = at::rand({6, 3});
  const at::Tensor mask = at::arange(6) > 3;
  EXPECT_TRUE(puts_rows_of(self, {mask}, at::rand({2, 3})));
  EXPECT_FALSE(puts_rows_of(self, {mask}, at::rand({2, 3}), /*accumulates=*/true));
  EXPECT_FALSE(puts_rows_of(self, {mask}, at::rand({3}))) << "one row for all";
  EXPECT_FALSE(puts_rows_of(self, {mask}, at::rand({3, 2}).t())) << "other strides";
  EXPECT_FALSE(puts_rows_of(self, {mask}, at::rand({3, 3}))) << "too many";
  EXPECT_FALSE(puts_rows_of(self, {mask}, at::rand({1, 1, 1}))) << "of more dimensions";
  EXPECT_FALSE(puts_rows_of(self, {mask}, at::rand({2, 3}, at::kDouble))) << "another dtype, an error";
  EXPECT_FALSE(puts_rows_of(self, {numbers({0, 6})}, at::rand({2, 3}))) << "out of range";
  c10::Stack overlapping = index_call(self, {mask});
  overlapping.insert(overlapping.end(), {self.slice(0, 0, 2), false});
  EXPECT_FALSE(run_exact_kernel(make_op("aten::index_put_"), overlapping)) << "of its own memory";
}

TEST(IndexedRowsTest, OfTablesAreThoseOfPyTorch) {
  const auto is_embedding = [](const at::Tensor& table, const at::Tensor& index) {
    return is_computed_exactly("aten::embedding", {table, index, /*padding_idx=*/-1, false, false});
  };
  const auto is_selected = [](const at::Tensor& self, int64_t dim, const at::Tensor& index) {
    return is_computed_exactly("aten::index_select", {self, dim, index});
  };
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kBool}) {
    const at::Tensor table = at::arange(60).reshape({12, 5}).to(dtype);
    EXPECT_TRUE(is_embedding(table, numbers({3, 0, 11, 3})));
    EXPECT_TRUE(is_embedding(table, numbers({3, 0, 11, 3}).view({2, 1, 2})));
    EXPECT_TRUE(is_embedding(table, numbers({3})[0]));
    EXPECT_TRUE(is_selected(table, 0, numbers({3, 0, 11, 3})));
    EXPECT_TRUE(is_selected(table.view({4, 3, 5}), -3, numbers({3, 0})));
    EXPECT_TRUE(is_selected(table.view({60}), 0, numbers({59, 0})));
  }
  EXPECT_TRUE(is_embedding(at::randn({300, 70}), at::randint(300, {2000}, at::kLong))) << "by several threads";
  const at::Tensor table = at::rand({4, 3});
  EXPECT_FALSE(is_embedding(table, numbers({4}))) << "out of range";
  EXPECT_FALSE(is_embedding(table, numbers({-1}))) << "out of range";
  EXPECT_FALSE(is_embedding(table, numbers({1}).to(at::kInt)));
  EXPECT_FALSE(is_embedding(table.t(), numbers({1})));
  EXPECT_FALSE(is_embedding(table[0], numbers({1}))) << "an error";
  EXPECT_FALSE(is_embedding(table, numbers({1}).slice(0, 0, 0)));
  EXPECT_FALSE(is_selected(table, 1, numbers({1})));
  EXPECT_FALSE(is_selected(table, 0, numbers({1}).view({1, 1}))) << "an error";
  EXPECT_FALSE(is_selected(table, 0, numbers({-1}))) << "out of range";
}

TEST(IndexedRowsTest, LeavesErrorsToPyTorch) {
  const at::Tensor self = at::rand({6, 3});
  for (const at::Tensor& index :
       {numbers({6}),
        numbers({0, -7}),
        numbers({0, 0, 6, 0}).view({2, 2}),
        at::ones({5}, at::kBool),
        at::ones({6, 2}, at::kBool)}) {
    c10::Stack stack = index_call(self, {index});
    EXPECT_FALSE(run_exact_kernel(make_op("aten::index", "Tensor"), stack));
    EXPECT_THROW(make_op("aten::index", "Tensor").handle().callBoxed(stack), c10::Error);
  }
}

} // namespace
} // namespace lazyplug
