#include "lowering/ir/op_variants.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

const c10::FunctionSchema& schema_of(const char* name, const char* overload = "") {
  return make_op(name, overload).handle().schema();
}

TEST(TakesArgumentsOf, ComparesNamesTypesAndNumbers) {
  const auto& add = schema_of("aten::add", "Tensor");
  EXPECT_TRUE(takes_arguments_of(add, schema_of("aten::add_", "Tensor")));
  EXPECT_TRUE(takes_arguments_of(add, schema_of("aten::add", "out"), 1));
  EXPECT_FALSE(takes_arguments_of(add, schema_of("aten::add", "out")));
  EXPECT_FALSE(takes_arguments_of(add, schema_of("aten::add", "Scalar"))) << "another type";
  EXPECT_FALSE(takes_arguments_of(schema_of("aten::sigmoid_backward"), schema_of("aten::tanh", "out"), 1));
}

int num_found = 0;

std::string find_name(const OpInfo& op) {
  ++num_found;
  return op.name();
}

TEST(OpVariants, AreFoundOnceForEachOp) {
  OpVariants<std::string> names(find_name);
  const OpInfo& relu = make_op("aten::relu");
  const std::string& name = names.of(relu);
  EXPECT_EQ(name, "aten::relu");
  EXPECT_EQ(&names.of(relu), &name);
  EXPECT_EQ(names.of(make_op("aten::tanh")), "aten::tanh");
  EXPECT_EQ(num_found, 2);
}

} // namespace
} // namespace lazyplug
