#include "lowering/out_variants.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

std::string variant_of(const char* name, const char* overload = "") {
  const auto* variant = find_out_variant(make_op(name, overload));
  return variant ? c10::toString(variant->operator_name()) : "none";
}

TEST(OutVariants, AreFoundUnderSeveralNames) {
  EXPECT_EQ(variant_of("aten::add", "Tensor"), "aten::add.out");
  EXPECT_EQ(variant_of("aten::eq", "Scalar"), "aten::eq.Scalar_out");
  EXPECT_EQ(variant_of("aten::sigmoid"), "aten::sigmoid.out");
  EXPECT_EQ(variant_of("aten::tanh_backward"), "aten::tanh_backward.grad_input");
}

TEST(OutVariants, OnlyOfPointwiseOpsWithOneImplementation) {
  EXPECT_EQ(variant_of("aten::mm"), "none") << "reads its operands again";
  EXPECT_EQ(variant_of("aten::cumsum"), "none");
  EXPECT_EQ(variant_of("aten::add_", "Tensor"), "none") << "writes already";
  EXPECT_EQ(variant_of("aten::relu"), "none") << "is not structured";
  EXPECT_EQ(variant_of("aten::frexp", "Tensor"), "none") << "has two results";
}

TEST(OutVariants, AreLookedUpOnce) {
  const OpInfo& op = make_op("aten::add", "Tensor");
  EXPECT_EQ(find_out_variant(op), find_out_variant(op));
}

// What the contract promises, of all ops that there are: the same bits, also where `out` is an operand.
TEST(OutVariants, GiveTheSameBitsInPlace) {
  size_t num_compared = 0;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle || !name.name.starts_with("aten::")) {
      continue;
    }
    const auto* variant = find_out_variant(make_op(name.name.c_str(), name.overload_name.c_str()));
    for (const auto& [dtype, size] : std::vector<std::pair<at::ScalarType, int64_t>>{
             {at::kFloat, 1003},
             {at::kFloat, 5},
             {at::kDouble, 1003},
             {at::kDouble, 7},
             {at::kBFloat16, 1003},
             {at::kHalf, 37},
             {at::kLong, 1003},
             {at::kInt, 11}}) {
      for (size_t donor = 0; variant && donor < handle->schema().arguments().size(); ++donor) {
        c10::Stack stack;
        bool is_comparable = true;
        for (const auto& argument : handle->schema().arguments()) {
          const auto kind = argument.type()->kind();
          if (kind == c10::TypeKind::TensorType) {
            stack.emplace_back(at::linspace(0.1, 40, size).to(dtype) / (stack.size() + 1));
            stack.back() = stack.back().toTensor().to(dtype);
          } else if (argument.default_value()) {
            stack.push_back(*argument.default_value());
          } else if (kind == c10::TypeKind::NumberType || kind == c10::TypeKind::FloatType) {
            stack.emplace_back(0.5);
          } else if (kind == c10::TypeKind::IntType) {
            stack.emplace_back(2);
          } else {
            is_comparable = false;
          }
        }
        if (!is_comparable || !stack[donor].isTensor()) {
          continue;
        }
        c10::Stack plain = stack;
        try {
          handle->callBoxed(plain);
        } catch (const c10::Error&) {
          continue; // not for this dtype
        }
        const at::Tensor expected = plain[0].toTensor();
        if (expected.scalar_type() != dtype || expected.sizes() != stack[donor].toTensor().sizes()) {
          continue;
        }
        stack.emplace_back(stack[donor]);
        variant->callBoxed(stack);
        EXPECT_TRUE(at::equal(stack[0].toTensor().view(at::kByte), expected.view(at::kByte))) << name << dtype << donor;
        ++num_compared;
      }
    }
  }
  EXPECT_GT(num_compared, 300);
}

} // namespace
} // namespace lazyplug
