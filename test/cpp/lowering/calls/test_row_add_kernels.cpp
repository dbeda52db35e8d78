#include "lowering/calls/row_add_kernels.h"

#include <ATen/ATen.h>

#include "lowering/calls/plain_tensors.h"
#include "lowering/nodes/exact_kernels.h"
#include "test/cpp/lowering/exact_call.h"

namespace lazyplug {
namespace {

constexpr int64_t kSumOfBag = 0;
constexpr int64_t kMeanOfBag = 1;
constexpr int64_t kMax = 2;
const c10::IValue kNoWeights;

at::Tensor longs(std::vector<int64_t> numbers) {
  return at::tensor(numbers, at::kLong);
}

struct Bags {
  at::Tensor weight;
  at::Tensor indices;
  at::Tensor offsets;
  int64_t mode = kMeanOfBag;
  bool has_end = false;
  int64_t padding = -1;
};

c10::Stack arguments_of(const Bags& bags, const c10::IValue& weights = kNoWeights) {
  return {bags.weight, bags.indices, bags.offsets, false, bags.mode, false, weights, bags.has_end, bags.padding};
}

c10::Stack arguments_of_gradient(const Bags& bags) {
  c10::Stack results = arguments_of(bags);
  make_op("aten::_embedding_bag").handle().callBoxed(results);
  const at::Tensor gradient = at::randn(results[0].toTensor().sizes(), bags.weight.scalar_type());
  return {
      gradient,
      bags.indices,
      bags.offsets,
      results[1],
      results[2],
      results[3],
      bags.weight.size(0),
      false,
      bags.mode,
      false,
      kNoWeights,
      bags.padding};
}

class RowAddKernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(1);
  }
};

TEST_F(RowAddKernelsTest, ComputeGradientsOfEmbeddings) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t size : {1, 2, 7, 16, 33}) {
      const at::Tensor indices = at::randint(10, {4, 25}, at::kLong);
      for (const int64_t padding : {-1, 0, 9}) {
        EXPECT_TRUE(is_computed_exactly(
            "aten::embedding_dense_backward",
            {at::randn({4, 25, size}, dtype), indices, 10, padding, /*scale_grad_by_freq=*/false}));
      }
    }
  }
}

TEST_F(RowAddKernelsTest, ComputeBagsAndTheirGradients) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t size : {1, 3, 8, 16, 31, 64}) {
      for (const int64_t mode : {kSumOfBag, kMeanOfBag}) {
        for (const int64_t padding : {-1, 2}) {
          for (const bool has_end : {false, true}) {
            auto offsets = std::vector<int64_t>{0, 30, 30, 31, 90};
            if (has_end) {
              offsets.push_back(300);
            }
            const Bags bags{
                at::randn({12, size}, dtype),
                at::randint(12, {300}, at::kLong),
                longs(offsets),
                mode,
                has_end,
                padding};
            EXPECT_TRUE(is_computed_exactly("aten::_embedding_bag", arguments_of(bags)));
            EXPECT_TRUE(is_computed_exactly("aten::_embedding_bag_forward_only", arguments_of(bags)));
            EXPECT_TRUE(is_computed_exactly("aten::_embedding_bag_backward", arguments_of_gradient(bags)))
                << size << " numbers, mode " << mode;
          }
        }
      }
    }
  }
}

TEST_F(RowAddKernelsTest, ComputeManyRowsOnSeveralThreads) {
  const Bags bags{at::randn({900, 40}), at::randint(900, {5000}, at::kLong), at::arange(0, 5000, 9)};
  EXPECT_FALSE(is_computed_exactly("aten::_embedding_bag", arguments_of(bags))) << "PyTorch's is quicker";
  EXPECT_TRUE(is_computed_exactly("aten::_embedding_bag_backward", arguments_of_gradient(bags)));
}

TEST_F(RowAddKernelsTest, AddByIndices) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{6}, {6, 5}, {6, 2, 9}}) {
      auto of_source = sizes;
      of_source[0] = 40;
      const at::Tensor indices = at::randint(6, {40}, at::kLong);
      const at::Tensor source = at::randn(of_source, dtype);
      EXPECT_TRUE(is_computed_exactly("aten::index_add", {at::randn(sizes, dtype), 0, indices, source, 1}));
      const at::Tensor self = at::randn(sizes, dtype);
      const at::Tensor expected = self.index_add(0, indices, source);
      c10::Stack stack{self, -self.dim(), indices, source, 1.0};
      ASSERT_TRUE(run_exact_kernel(make_op("aten::index_add_"), stack));
      ASSERT_EQ(stack.size(), 1);
      EXPECT_TRUE(stack[0].toTensor().is_same(self));
      EXPECT_TRUE(has_same_bits(self, expected));
    }
  }
}

c10::Stack put_arguments(const at::Tensor& self, const at::Tensor& index, const at::Tensor& values, bool adds = true) {
  c10::List<std::optional<at::Tensor>> indices;
  indices.push_back(index);
  indices.push_back(std::nullopt);
  return {self, indices, values, adds, /*unsafe=*/true};
}

TEST_F(RowAddKernelsTest, AddWhatIsPut) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{40}, {8, 5}}) {
      const at::Tensor index = at::randint(6, sizes, at::kLong);
      auto of_values = sizes;
      of_values.push_back(7);
      const at::Tensor values = at::randn(of_values, dtype);
      const at::Tensor self = at::randn({6, 7}, dtype);
      const at::Tensor expected = self.index_put({index}, values, /*accumulate=*/true);
      c10::Stack stack = put_arguments(self, index, values);
      ASSERT_TRUE(run_exact_kernel(make_op("aten::_index_put_impl_"), stack));
      ASSERT_EQ(stack.size(), 1);
      EXPECT_TRUE(stack[0].toTensor().is_same(self));
      EXPECT_TRUE(has_same_bits(self, expected));
    }
  }
}

TEST_F(RowAddKernelsTest, LeaveOtherPutsToPyTorch) {
  const at::Tensor self = at::randn({6, 7});
  const at::Tensor values = at::randn({2, 7});
  const auto is_put = [&](const at::Tensor& index, const at::Tensor& values, bool adds = true) {
    c10::Stack stack = put_arguments(self, index, values, adds);
    return run_exact_kernel(make_op("aten::_index_put_impl_"), stack);
  };
  EXPECT_FALSE(is_put(longs({1, 2}), values, /*adds=*/false));
  EXPECT_FALSE(is_put(longs({1, -2}), values));
  EXPECT_FALSE(is_put(longs({1, 6}), values));
  EXPECT_FALSE(is_put(longs({1, 2}), values[0])) << "one row for all";
  EXPECT_FALSE(is_put(self.select(1, 0) > 0, values));
  EXPECT_TRUE(is_put(longs({1, 1}), values));
}

TEST_F(RowAddKernelsTest, LeaveTheRestToPyTorch) {
  const at::Tensor gradient = at::randn({3, 4});
  const auto is_gradient = [&](const at::Tensor& rows, const at::Tensor& indices, bool by_frequency = false) {
    return is_computed_exactly("aten::embedding_dense_backward", {rows, indices, 5, -1, by_frequency});
  };
  EXPECT_TRUE(is_gradient(gradient, longs({1, 0, 1})));
  EXPECT_FALSE(is_gradient(gradient, longs({1, 0, 1}), /*by_frequency=*/true));
  EXPECT_FALSE(is_gradient(gradient.to(at::kHalf), longs({1, 0, 1})));
  EXPECT_FALSE(is_gradient(gradient, longs({1, 0, 1}).to(at::kInt)));
  EXPECT_FALSE(is_gradient(at::randn({4, 3}).t(), longs({1, 0, 1})));
  EXPECT_FALSE(is_gradient(gradient, longs({1, 0, 5})));
  EXPECT_FALSE(is_gradient(gradient, longs({1, -1, 0})));
  EXPECT_FALSE(is_gradient(gradient, longs({1, 0, 1}).slice(0, 0, 0)));

  const Bags bags{at::randn({5, 4}), longs({1, 2, 3}), longs({0, 1})};
  const auto is_bag = [](const Bags& bags, const c10::IValue& weights = kNoWeights) {
    return is_computed_exactly("aten::_embedding_bag", arguments_of(bags, weights));
  };
  EXPECT_TRUE(is_bag(bags));
  EXPECT_FALSE(is_bag({bags.weight, bags.indices, bags.offsets, kMax}));
  EXPECT_FALSE(is_bag({bags.weight, bags.indices, bags.offsets, kSumOfBag}, at::rand({3})));
  EXPECT_FALSE(is_bag({bags.weight, longs({1, 5, 3}), bags.offsets}));
  EXPECT_FALSE(is_bag({bags.weight, bags.indices, longs({1, 2})}));
  EXPECT_FALSE(is_bag({bags.weight, bags.indices, longs({0, 2, 1})}));
  EXPECT_FALSE(is_bag({bags.weight, bags.indices, longs({0, 4})}));
  EXPECT_FALSE(is_bag({bags.weight, bags.indices, longs({0, 2}), kSumOfBag, /*has_end=*/true}));
  EXPECT_FALSE(is_bag({at::randn({4, 5}).t(), bags.indices, bags.offsets}));

  const at::Tensor self = at::randn({3, 4});
  const at::Tensor source = at::randn({2, 4});
  const auto is_added =
      [](const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& source, double alpha = 1) {
        return is_computed_exactly("aten::index_add", {self, dim, index, source, alpha});
      };
  EXPECT_TRUE(is_added(self, 0, longs({1, 1}), source));
  EXPECT_FALSE(is_added(self, 0, longs({1, 1}), source, 2));
  EXPECT_FALSE(is_added(self, 1, longs({1, 1}), at::randn({3, 2})));
  EXPECT_FALSE(is_added(self, 0, longs({1, 3}), source));
  EXPECT_FALSE(is_added(self, 0, longs({0, 1}), self.slice(0, 0, 2))) << "it reads what is written in place";
  const at::Tensor many = at::randint(3, {1025}, at::kLong);
  EXPECT_FALSE(is_added(at::randn({3, 3}), 0, many, at::randn({1025, 3}))) << "PyTorch's is quicker";
  EXPECT_TRUE(is_added(self, 0, many, at::randn({1025, 4})));
  EXPECT_FALSE(is_added(self.to(at::kInt), 0, longs({1, 1}), source.to(at::kInt)));
}

} // namespace
} // namespace lazyplug
