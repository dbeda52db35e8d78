#include "lowering/execution/reproducer.h"

#include "common/config.h"
#include "lowering/computation.h"
#include "test/cpp/lowering/programs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace lazyplug {
namespace {

namespace fs = std::filesystem;

std::string raised_by(const OpInfo& op, c10::Stack arguments) {
  try {
    op.call(arguments);
  } catch (const c10::Error& error) {
    return error.msg();
  }
  return "";
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class ReproducerTest : public testing::Test {
 protected:
  void SetUp() override {
    folder = fs::path(testing::TempDir()) / "reproducers";
    fs::remove_all(folder);
    config().dump_dir.set(folder.string());
  }
  void TearDown() override {
    config().dump_dir.set("");
    config().debug.set(false);
    fs::remove_all(folder);
  }
  size_t num_files() const {
    return fs::exists(folder) ? std::distance(fs::directory_iterator(folder), {}) : 0;
  }

  fs::path folder;
  const OpInfo& select = make_op("aten::index_select");
  const c10::Stack arguments{at::ones({4, 3}).t(), 1, at::tensor({0L, 9L})};
};

TEST_F(ReproducerTest, IsAProgramAndItsArguments) {
  const auto program = write_reproducer(select, arguments, raised_by(select, arguments));
  ASSERT_TRUE(program);
  EXPECT_EQ(fs::path(*program).parent_path(), folder);
  EXPECT_NE(text_of(*program).find("torch.ops.aten.index_select.default(*arguments)"), std::string::npos);
  EXPECT_TRUE(fs::exists(fs::path(*program).replace_extension(".pt")));
  EXPECT_EQ(num_files(), 2);
}

TEST_F(ReproducerTest, NamesTheOverload) {
  const OpInfo& index = make_op("aten::index", "Tensor");
  const c10::List<std::optional<at::Tensor>> indices({std::nullopt, at::tensor({7L})});
  const c10::Stack stack{at::ones({4, 3}), indices};
  const auto program = write_reproducer(index, stack, raised_by(index, stack));
  ASSERT_TRUE(program);
  EXPECT_NE(text_of(*program).find("torch.ops.aten.index.Tensor("), std::string::npos);
}

TEST_F(ReproducerTest, IsNotKeptUnlessItRaisesTheSame) {
  EXPECT_FALSE(write_reproducer(select, arguments, "something else"));
  EXPECT_FALSE(write_reproducer(select, {at::ones({4, 3}), 1, at::tensor({0L})}, "nothing is wrong"));
  EXPECT_EQ(num_files(), 0);
}

TEST_F(ReproducerTest, IsNotWrittenForLargeArguments) {
  const c10::Stack large{at::empty({64 << 20, 1}), 1, at::tensor({9L})};
  EXPECT_FALSE(write_reproducer(select, large, raised_by(select, large)));
  EXPECT_EQ(num_files(), 0);
}

TEST_F(ReproducerTest, OfOpsOfPyTorchThatDrawNothing) {
  EXPECT_TRUE(is_reproducible(select));
  EXPECT_FALSE(is_reproducible(make_op("aten::bernoulli")));
  EXPECT_FALSE(is_reproducible(make_op("lazyplug_test::fail")));
}

TEST_F(ReproducerTest, IsNamedByTheErrorWhenDebugging) {
  for (bool debug : {false, true}) {
    config().debug.set(debug);
    Trace trace;
    const Value values = add_leaf(trace, at::ones({4, 3}));
    const Value index = add_leaf(trace, at::tensor({0L, 9L}));
    const auto signature = make_signature(select, {an_operand(), a_constant(0), an_operand()}, {floats({2, 3})});
    const Value failed{trace.add_call(signature, {Operand{values}, Operand{index}}, {}, 0, nullptr), 0};
    const ComputationPtr computation = compile(trace, failed);
    const size_t dumped = num_files(); // by passes
    const auto outputs = computation->run({trace.leaves(), {}}).outputs;
    try {
      std::rethrow_exception(outputs[0].error);
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace();
      EXPECT_EQ(text.find("python " + folder.string()) != std::string::npos, debug) << text;
    }
    EXPECT_EQ(num_files() - dumped, debug ? 2 : 0);
  }
}

TEST_F(ReproducerTest, ListsOfTensorsPassForListsOfOptionalOnesWhenDebugging) {
  config().debug.set(true);
  Trace trace;
  const Value values = add_leaf(trace, at::arange(4, at::kFloat));
  const Value index = add_leaf(trace, at::tensor({2L, 1L}));
  const auto signature = make_signature(make_op("aten::index", "Tensor"), {an_operand(), a_list(1)}, {floats({2})});
  const Value picked{trace.add_call(signature, {Operand{values}, Operand{index}}, {}, 0, nullptr), 0};
  const auto outputs = compile(trace, picked)->run({trace.leaves(), {}}).outputs;
  ASSERT_FALSE(outputs[0].error);
  EXPECT_TRUE(at::equal(outputs[0].tensor, at::tensor({2.F, 1.F})));
}

} // namespace
} // namespace lazyplug
