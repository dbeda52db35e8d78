#include "backend/caches/recompiles.h"

#include "backend/caches/find_or_compile.h"
#include "backend/diagnostics/journal.h"
#include "test/cpp/backend/backend_test.h"
#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

void compile_program(
    c10::IntArrayRef sizes,
    bool second_result = false,
    const char* location = nullptr,
    const Provenance& provenance = {}) {
  Trace trace;
  const Value leaf = trace.add_device_data(at::Tensor(), floats(sizes));
  static const OpInfo& op = make_op("aten::relu");
  const auto signature = make_signature(op, {an_operand()}, {floats(sizes)});
  const Value relu{trace.add_call(signature, Operand{leaf}, {}, 0, location), 0};
  const Value mul = add_mul(trace, {relu}, {leaf}, floats(sizes));
  find_or_compile(trace, second_result ? std::vector<Value>{relu, mul} : std::vector<Value>{mul}, provenance);
}

class RecompilesTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    computation_cache().clear();
  }
};

TEST_F(RecompilesTest, TheFirstGraphIsLikeNone) {
  compile_program({2});
  EXPECT_EQ(count("Recompile/first"), 1);
  EXPECT_TRUE(contains(explain_recompile(), "is like no graph in the cache"));
}

TEST_F(RecompilesTest, NamesShapeAndBothNodes) {
  compile_program({2});
  compile_program({3});
  EXPECT_EQ(count("Recompile/shape"), 1);
  const std::string text = explain_recompile();
  EXPECT_TRUE(contains(text, "differs in its shape: the layout is Float[3] strides=[1], was Float[2] strides=[1]"))
      << text;
  EXPECT_TRUE(contains(text, "what helps: keep sizes the same")) << text;
  EXPECT_TRUE(contains(text, "\n  now:    %0 = device_data(0)  # Float[3]")) << text;
  EXPECT_TRUE(contains(text, "\n  before: %0 = device_data(0)  # Float[2]")) << text;
}

TEST_F(RecompilesTest, LeavesHaveTheLineThatReadsThem) {
  compile_program({2}, false, "model.py:3");
  compile_program({3}, false, "model.py:9");
  EXPECT_TRUE(contains(explain_recompile(), "Float[3] strides=[1] read at model.py:9")) << explain_recompile();
  EXPECT_TRUE(contains(explain_recompile(), "Float[2] strides=[1] read at model.py:3")) << explain_recompile();
}

TEST_F(RecompilesTest, NamesWhereGraphsComeFromAndEnd) {
  compile_program({2}, false, "model.py:3", {{1, "item", "model.py:4"}, {"data.py:1"}});
  compile_program({3}, false, "model.py:3", {{2, "copy to CPU", "model.py:5"}, {"data.py:2"}});
  const std::string text = explain_recompile();
  EXPECT_TRUE(contains(text, "(2 ops, model.py:3, ended by copy to CPU at model.py:5)")) << text;
  EXPECT_TRUE(contains(text, "(2 ops, model.py:3, ended by item at model.py:4)")) << text;
  EXPECT_TRUE(contains(text, "Float[3] strides=[1] made at data.py:2 read at model.py:3")) << text;
  EXPECT_TRUE(contains(text, "Float[2] strides=[1] made at data.py:1 read at model.py:3")) << text;
}

TEST_F(RecompilesTest, NamesResults) {
  compile_program({2});
  compile_program({2}, /*second_result=*/true);
  EXPECT_EQ(count("Recompile/results"), 1);
  EXPECT_TRUE(contains(explain_recompile(), "in its results: %1, of aten::relu, lives on")) << explain_recompile();
}

TEST_F(RecompilesTest, RunsOfACachedGraphAreNoRecompiles) {
  compile_program({2});
  compile_program({2});
  EXPECT_EQ(count("Recompile/first"), 1);
}

TEST_F(RecompilesTest, TheJournalKeepsThemWhenDebugging) {
  const ScopedFlag<bool> debug(config().debug, true);
  clear_journal();
  compile_program({2});
  ASSERT_EQ(journal().size(), 1);
  EXPECT_EQ(journal()[0].kind, JournalKind::kCompile);
  EXPECT_EQ(journal()[0].cause, "first");
  EXPECT_EQ(journal()[0].detail, explain_recompile());
  clear_journal();
}

} // namespace
} // namespace lazyplug
