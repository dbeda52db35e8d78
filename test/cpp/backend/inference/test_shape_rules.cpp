#include "backend/inference/shape_rules.h"

#include <ATen/core/Reduction.h>

#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/inference/meta_tensors.h"

namespace lazyplug {
namespace {

const ShapeRule* shape_rule(const char* name, const char* overload = "") {
  return OpTable::get().shape({name, overload});
}

std::vector<at::Tensor> results_of(const char* name, const char* overload, const c10::Stack& arguments) {
  const ShapeRule* rule = shape_rule(name, overload);
  TORCH_CHECK(rule, "no rule for ", name);
  std::vector<at::Tensor> results;
  for (const c10::IValue& result : (*rule)(arguments)) {
    results.push_back(result.toTensor());
  }
  return results;
}

at::Tensor result_of(const char* name, const char* overload, const c10::Stack& arguments) {
  return results_of(name, overload, arguments).at(0);
}

TEST(ShapeRules, LoopsKeepTheOrderOfDimensions) {
  const at::Tensor x = meta({2, 3, 4}).transpose(0, 2);
  EXPECT_EQ(result_of("aten::relu", "", {x}).strides(), x.strides());
  EXPECT_EQ(result_of("aten::isnan", "", {x}).dtype(), at::kBool);
  EXPECT_EQ(result_of("aten::abs", "", {meta({2}, at::kComplexFloat)}).dtype(), at::kFloat);
}

TEST(ShapeRules, LoopsBroadcast) {
  const auto chosen = result_of("aten::where", "self", {meta({3}, at::kBool), meta({2, 1}), meta({}, at::kDouble)});
  EXPECT_EQ(chosen.sizes(), c10::IntArrayRef({2, 3}));
  EXPECT_EQ(chosen.dtype(), at::kFloat);
  EXPECT_THROW(result_of("aten::logical_and", "", {meta({2}), meta({3})}), c10::Error);
}

TEST(ShapeRules, ReductionsDropWhatTheyReduce) {
  const at::Tensor x = meta({2, 3, 4});
  const auto reduced = [&x](const c10::IValue& dims, bool keep) {
    return result_of("aten::var", "correction", {x, dims, c10::IValue(), keep}).sizes().vec();
  };
  EXPECT_EQ(reduced(std::vector<int64_t>{0, -1}, false), std::vector<int64_t>({3}));
  EXPECT_EQ(reduced(std::vector<int64_t>{1}, true), std::vector<int64_t>({2, 1, 4}));
  EXPECT_EQ(reduced(c10::IValue(), false), std::vector<int64_t>());
  EXPECT_EQ(result_of("aten::count_nonzero", "", {x, int64_t{1}}).sizes(), c10::IntArrayRef({2, 4}));
}

TEST(ShapeRules, LossesOfOneNumberUnlessTold) {
  const auto loss = [](int64_t reduction) {
    return result_of("aten::huber_loss", "", {meta({2, 3}), meta({2, 3}), reduction, 1.0}).dim();
  };
  EXPECT_EQ(loss(at::Reduction::Mean), 0);
  EXPECT_EQ(loss(at::Reduction::None), 2);
}

TEST(ShapeRules, Convolutions) {
  using List = std::vector<int64_t>;
  const auto convolved = [](const at::Tensor& weight, bool transposed) {
    return result_of(
               "aten::convolution",
               "",
               {meta({2, 4, 8, 8}),
                weight,
                c10::IValue(),
                List{2, 2},
                List{1, 1},
                List{1, 1},
                transposed,
                List{0, 0},
                1})
        .sizes()
        .vec();
  };
  EXPECT_EQ(convolved(meta({5, 4, 3, 3}), false), List({2, 5, 4, 4}));
  EXPECT_EQ(convolved(meta({4, 5, 3, 3}), true), List({2, 5, 15, 15}));
  EXPECT_THROW(convolved(meta({5, 4, 3, 3}, at::kDouble), false), c10::Error);
}

TEST(ShapeRules, NormalizationsReturnStatistics) {
  const auto results = results_of(
      "aten::native_layer_norm",
      "",
      {meta({2, 3, 4}, at::kBFloat16), std::vector<int64_t>{4}, meta({4}), c10::IValue(), 1e-5});
  ASSERT_EQ(results.size(), 3);
  EXPECT_EQ(results[0].dtype(), at::kBFloat16);
  EXPECT_EQ(results[1].sizes(), c10::IntArrayRef({2, 3, 1}));
  EXPECT_EQ(results[1].dtype(), at::kFloat);
}

TEST(ShapeRules, RareOpsHaveNone) {
  EXPECT_EQ(shape_rule("aten::nonzero"), nullptr);
  EXPECT_EQ(shape_rule("aten::mm"), nullptr) << "it has a shape function";
}

} // namespace
} // namespace lazyplug
