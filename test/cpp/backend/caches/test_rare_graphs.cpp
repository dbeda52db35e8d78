#include "backend/caches/rare_graphs.h"

#include "backend/api/cached_run.h"
#include "backend/caches/steps.h"
#include "test/cpp/backend/caches/step_of_length.h"

namespace lazyplug {
namespace {

class RareGraphsTest : public BackendTest {
 protected:
  RareGraphsTest() {
    clear_graphs();
  }
  ~RareGraphsTest() override {
    clear_graphs();
  }

  static void warm_up() {
    for (int64_t i = 0; i < 45; ++i) {
      run_step_of_length(1);
    }
    reset_metrics();
  }
  // How often a graph that comes every so many steps is not compiled.
  static int64_t times_uncompiled(int64_t distance) {
    clear_graphs();
    warm_up();
    const Trace trace;
    int64_t times = 0;
    while (runs_uncompiled(trace, {})) {
      ++times;
      for (int64_t step = 0; step < distance; ++step) {
        note_step();
      }
    }
    return times;
  }
  static void expect(int64_t num_compiled, int64_t num_uncompiled) {
    EXPECT_EQ(count("Compile"), num_compiled);
    EXPECT_EQ(count("RunUncompiled"), num_uncompiled);
    EXPECT_EQ(count("FallbackTotal"), 0);
  }

  const ScopedFlag<std::string> automatic_{config().compile, "auto"};
  // One trace a step, however long it takes.
  const ScopedFlag<int64_t> chunk_{config().chunk_nodes, 1 << 20};
};

TEST_F(RareGraphsTest, BeginningIsCompiled) {
  reset_metrics();
  for (int64_t length = 1; length <= 5; ++length) {
    run_step_of_length(length);
  }
  expect(5, 0);
}

TEST_F(RareGraphsTest, WhatComesOnceLaterOnIsNot) {
  warm_up();
  for (int64_t length = 2; length <= 6; ++length) {
    run_step_of_length(length);
    run_step_of_length(1);
  }
  expect(0, 5);
}

TEST_F(RareGraphsTest, WhatGoesOnComingIsCompiled) {
  warm_up();
  for (int64_t i = 0; i < 300; ++i) {
    run_step_of_length(2);
    run_step_of_length(1);
    run_step_of_length(1);
  }
  expect(1, 256);
}

TEST_F(RareGraphsTest, WhatComesSeldomIsCompiledLater) {
  EXPECT_EQ(times_uncompiled(3), 256);
  EXPECT_EQ(times_uncompiled(21), 512);
  EXPECT_EQ(times_uncompiled(101), 1023);
}

TEST_F(RareGraphsTest, WhatIsLargeIsCompiledSoon) {
  warm_up();
  const at::Tensor start = iota({1024, 2048});
  const at::Tensor large = to_lazy(start);
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(at::equal(((large + 1) * 2).cpu(), (start + 1) * 2));
  }
  EXPECT_EQ(count("Compile"), 1);
  EXPECT_LE(count("RunUncompiled"), 5);
}

TEST_F(RareGraphsTest, ProgramThatRepeatsNothingHasBegunAfterSomeSteps) {
  reset_metrics();
  for (int64_t length = 1; length <= 60; ++length) {
    run_step_of_length(length);
  }
  EXPECT_EQ(count("Compile"), 48);
  EXPECT_EQ(count("RunUncompiled"), 12);
}

TEST_F(RareGraphsTest, FlagDecides) {
  {
    const ScopedFlag<std::string> never(config().compile, "never");
    reset_metrics();
    run_step_of_length(1);
    run_step_of_length(1);
    expect(0, 2);
  }
  warm_up();
  const ScopedFlag<std::string> always(config().compile, "always");
  run_step_of_length(2);
  expect(1, 0);
}

TEST_F(RareGraphsTest, WithoutGraphsEverythingBegins) {
  warm_up();
  clear_graphs();
  run_step_of_length(2);
  expect(1, 0);
}

TEST_F(RareGraphsTest, WhatNeverRepeatsIsAStormStill) {
  const ScopedFlag<int64_t> limit(config().max_unused_graphs, 16);
  warm_up();
  for (int64_t length = 2; length <= 40; ++length) {
    run_step_of_length(length);
  }
  EXPECT_EQ(count("Compile"), 0);
  EXPECT_GE(count("CompileStorm"), 1);
  EXPECT_GT(count("RunAtOnce"), 100);
}

TEST_F(RareGraphsTest, ErrorsAreThoseOfGraphs) {
  warm_up();
  const at::Tensor table = to_lazy(iota({4, 3}));
  const at::Tensor sum = table + 1;
  const at::Tensor row = table.index_select(0, to_lazy(at::tensor({int64_t{9}})));
  try {
    row.cpu();
    FAIL() << "nothing was raised";
  } catch (const c10::IndexError& error) {
    EXPECT_NE(std::string(error.what()).find("while running aten::index_select(Float[4, 3]"), std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(at::equal(sum.cpu(), iota({4, 3}) + 1));
}

} // namespace
} // namespace lazyplug
