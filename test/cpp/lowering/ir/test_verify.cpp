#include "lowering/ir/verify.h"

#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

namespace lazyplug {
namespace {

std::string complaint(const Trace& trace, c10::ArrayRef<Value> roots = {}) {
  try {
    verify(trace, roots);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "none";
}

#define EXPECT_COMPLAINT(complaint, part) EXPECT_NE((complaint).find(part), std::string::npos) << (complaint)

class Verify : public testing::Test {
 protected:
  Trace trace;
  const Value a = add_leaf(trace, at::ones({2}));
  const Value b = add_leaf(trace, at::ones({2}));
};

TEST_F(Verify, AcceptsAnOrdinaryProgram) {
  const Value sum = add_add(trace, {a}, view_of(trace, b, floats({1})), floats({2}));
  const Value changed = add_add_(trace, {a}, {a});
  const Value undefined_operand = add_relu(trace, {}, floats({2}));
  EXPECT_EQ(complaint(trace, {b, sum, changed, undefined_operand}), "none");
}

TEST_F(Verify, OperandsAreOutputsOfEarlierNodes) {
  add_relu(trace, {Value{2, 0}}, floats({2}));
  EXPECT_COMPLAINT(complaint(trace), "%2 reads %2.0");
}

TEST_F(Verify, OperandsExist) {
  add_relu(trace, {Value{0, 1}}, floats({2}));
  EXPECT_COMPLAINT(complaint(trace), "%2 reads %0.1");
}

TEST_F(Verify, CallsHaveTheOperandsTheirSignatureBinds) {
  static const OpInfo& op = make_op("aten::cat");
  const auto signature = make_signature(op, {a_list(3), a_constant(0)}, {floats({4})});
  trace.add_call(signature, {{a}, {b}}, {}, 0, nullptr);
  EXPECT_COMPLAINT(complaint(trace), "%2 of aten::cat has 2 operands and 0 scalars; its signature binds 3 and 0");
}

TEST_F(Verify, CallsHaveTheScalarsTheirSignatureBinds) {
  static const OpInfo& op = make_op("aten::bernoulli_", "float");
  const auto signature = make_signature(op, {an_operand(), a_scalar(), a_seed()}, {}, {true});
  trace.add_call(signature, Operand{a}, c10::IValue(0.5), 1, nullptr);
  EXPECT_COMPLAINT(complaint(trace), "1 scalars; its signature binds 1 and 2");
}

TEST_F(Verify, ViewsStayInsideTheirStorage) {
  Geometry view = floats({1});
  view.offset = 2;
  add_relu(trace, view_of(trace, a, view), floats({1}));
  EXPECT_COMPLAINT(complaint(trace), "a view leaves its storage: %2 = aten::relu(%0[Float[1]");
}

TEST_F(Verify, WrittenValuesAreNotReadAgain) {
  add_add_(trace, {a}, {b});
  add_relu(trace, {a}, floats({2}));
  EXPECT_COMPLAINT(complaint(trace), "reads what has been written over: %3 = aten::relu(%0)");
}

TEST_F(Verify, RootsExist) {
  EXPECT_COMPLAINT(complaint(trace, Value{7, 0}), "root %7 does not exist");
  EXPECT_COMPLAINT(complaint(trace, Value{0, 1}), "root %0 does not exist");
}

TEST_F(Verify, RootsHaveNotBeenWrittenOver) {
  add_add_(trace, {a}, {b});
  EXPECT_COMPLAINT(complaint(trace, a), "root has been written over: %0");
}

TEST_F(Verify, RootsAreDistinct) {
  EXPECT_COMPLAINT(complaint(trace, {a, b, a}), "two storages hold one value: %0");
}

} // namespace
} // namespace lazyplug
