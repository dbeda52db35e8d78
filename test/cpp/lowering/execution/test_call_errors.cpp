#include "lowering/execution/call_errors.h"

#include "test/cpp/lowering/computation_test.h"

namespace lazyplug {
namespace {

TEST(CallErrors, CallIsDescribedByItsOperands) {
  EXPECT_EQ(describe_call("aten::mm", {"Float[2, 3]", "None"}), "while running aten::mm(Float[2, 3], None)");
}

TEST(CallErrors, ContextGoesWhereThereIsRoomForIt) {
  const auto error = std::make_exception_ptr(c10::IndexError(c10::SourceLocation{}, "too large"));
  add_context(error, "recorded here");
  EXPECT_NE(message(error).find("recorded here"), std::string::npos);
  const auto other = std::make_exception_ptr(std::out_of_range("too large"));
  add_context(other, "recorded here");
  EXPECT_EQ(message(other), "too large");
}

TEST(CallErrors, CopiedListsAreNobodyElses) {
  const c10::Stack stack{c10::List<at::Tensor>({at::ones({2})}), 3};
  const c10::Stack copies = copy_operands(stack);
  EXPECT_EQ(copies[1].toInt(), 3);
  EXPECT_FALSE(copies[0].is(stack[0]));
  EXPECT_TRUE(copies[0].toTensorVector()[0].is_same(stack[0].toTensorVector()[0]));
}

} // namespace
} // namespace lazyplug
