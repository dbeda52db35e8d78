#include "lowering/nodes/out_variants.h"

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

// Arguments of an op of tensors and numbers; nothing of any other.
std::optional<c10::Stack> make_arguments(const c10::FunctionSchema& schema, at::ScalarType dtype, int64_t size) {
  c10::Stack stack;
  for (const auto& argument : schema.arguments()) {
    const auto kind = argument.type()->kind();
    if (kind == c10::TypeKind::TensorType) {
      const at::Tensor numbers = at::linspace(0.1, 40, size).to(dtype) / (stack.size() + 1);
      stack.emplace_back(numbers.to(dtype));
    } else if (argument.default_value()) {
      stack.push_back(*argument.default_value());
    } else if (kind == c10::TypeKind::NumberType || kind == c10::TypeKind::FloatType) {
      stack.emplace_back(0.5);
    } else if (kind == c10::TypeKind::IntType) {
      stack.emplace_back(2);
    } else {
      return std::nullopt;
    }
  }
  return stack;
}

// What the op returns; undefined if it is not for these arguments.
at::Tensor call(const c10::OperatorHandle& op, c10::Stack stack) {
  try {
    op.callBoxed(stack);
    return stack[0].toTensor();
  } catch (const c10::Error&) {
    return {};
  }
}

// How many operands have served as the destination.
size_t compare_in_place(const OpInfo& op, const c10::Stack& arguments) {
  const at::Tensor expected = call(op.handle(), arguments);
  size_t num_compared = 0;
  for (const c10::IValue& donor : arguments) {
    if (!expected.defined() || !donor.isTensor() || donor.toTensor().scalar_type() != expected.scalar_type()) {
      continue;
    }
    c10::Stack stack;
    for (const c10::IValue& argument : arguments) {
      stack.push_back(argument.isTensor() ? argument.toTensor().clone() : argument);
    }
    stack.push_back(stack[&donor - arguments.data()]);
    const at::Tensor actual = call(*find_out_variant(op), stack);
    EXPECT_TRUE(at::equal(actual.view(at::kByte), expected.view(at::kByte))) << op.name() << expected.scalar_type();
    ++num_compared;
  }
  return num_compared;
}

// What the contract promises, of all ops that there are: the same bits, also where `out` is an operand.
TEST(OutVariants, GiveTheSameBitsInPlace) {
  const std::vector<std::pair<at::ScalarType, int64_t>> kinds = {
      {at::kFloat, 1003},
      {at::kFloat, 5},
      {at::kDouble, 1003},
      {at::kDouble, 7},
      {at::kBFloat16, 1003},
      {at::kHalf, 37},
      {at::kLong, 1003},
      {at::kInt, 11}};
  size_t num_compared = 0;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::") || !c10::Dispatcher::singleton().findSchema(name)) {
      continue;
    }
    const OpInfo& op = make_op(name.name.c_str(), name.overload_name.c_str());
    for (const auto& [dtype, size] : kinds) {
      const auto arguments = make_arguments(op.handle().schema(), dtype, size);
      num_compared += arguments && find_out_variant(op) ? compare_in_place(op, *arguments) : 0;
    }
  }
  EXPECT_GT(num_compared, 300);
}

} // namespace
} // namespace lazyplug
