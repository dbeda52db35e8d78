#include "backend/caches/find_or_compile.h"

#include "test/cpp/backend/backend_test.h"
#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

struct Program {
  Trace trace;
  Value first;
  Value second;
};

Program make_program(double alpha, const Geometry& layout = floats({2})) {
  Program program;
  const Value leaf = program.trace.add_device_data(at::Tensor(), layout);
  program.first = add_add(program.trace, {leaf}, {leaf}, layout, alpha);
  program.second = add_mul(program.trace, {program.first}, {leaf}, layout);
  return program;
}

class FindOrCompileTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    computation_cache().clear();
  }
};

TEST_F(FindOrCompileTest, CompilesAProgramOnceWhateverItsScalars) {
  const Program one = make_program(1);
  const Program two = make_program(2);
  const auto computation = find_or_compile(one.trace, one.second);
  EXPECT_EQ(find_or_compile(two.trace, two.second), computation);
  EXPECT_EQ(count("Compile"), 1);
  EXPECT_EQ(count("CacheMiss"), 1);
  EXPECT_EQ(count("CacheHit"), 1);
}

TEST_F(FindOrCompileTest, FindsWhatHasBeenCompiledAndCompilesNothing) {
  const Program program = make_program(1);
  EXPECT_EQ(find_compiled(program.trace, program.second), nullptr);
  const auto computation = find_or_compile(program.trace, program.second);
  EXPECT_EQ(find_compiled(program.trace, program.second), computation);
  EXPECT_EQ(count("Compile"), 1);
}

TEST_F(FindOrCompileTest, GraphsAreFamiliarTheSecondTime) {
  const Geometry unusual = floats({2, 3, 5, 7});
  const Program program = make_program(1, unusual);
  EXPECT_FALSE(is_graph_familiar(program.trace, program.second));
  EXPECT_TRUE(is_graph_familiar(make_program(2, unusual).trace, program.second));
  EXPECT_FALSE(is_graph_familiar(program.trace, program.first));
  EXPECT_EQ(count("Compile"), 0);
}

TEST_F(FindOrCompileTest, OtherLayoutsAndRootsAreOtherPrograms) {
  const Program small = make_program(1);
  const Program large = make_program(1, floats({3}));
  const auto computation = find_or_compile(small.trace, small.second);
  EXPECT_NE(find_or_compile(large.trace, large.second), computation);
  EXPECT_NE(find_or_compile(small.trace, {small.first, small.second}), computation);
  EXPECT_EQ(count("Compile"), 3);
}

TEST_F(FindOrCompileTest, EvictedProgramsAreCompiledAgain) {
  const ScopedFlag<int64_t> small(config().cache_size, 1);
  const Program p = make_program(1);
  find_or_compile(p.trace, p.first);
  find_or_compile(p.trace, p.second);
  find_or_compile(p.trace, p.first);
  EXPECT_EQ(count("Compile"), 3);
}

TEST_F(FindOrCompileTest, BrokenProgramsAreRefusedAndNotKept) {
  const Program p = make_program(1);
  EXPECT_THROW(find_or_compile(p.trace, {p.first, p.first}), c10::Error);
  EXPECT_EQ(count("Compile"), 0);
  EXPECT_EQ(computation_cache().size(), 0);
}

} // namespace
} // namespace lazyplug
