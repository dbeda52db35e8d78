#include "backend/execution/device_context.h"

#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"
#include "test/cpp/common/run_in_threads.h"

#include <thread>

namespace lazyplug {
namespace {

class DeviceContextTest : public BackendTest {
 protected:
  const at::Tensor x = to_lazy(iota({2, 3}));
  const at::Tensor cpu = iota({2, 3});
};

// ---- recording and flushing ----

TEST_F(DeviceContextTest, RecordsWithoutRunning) {
  const at::Tensor y = (x + x) * x;
  EXPECT_EQ(count("NodesRecorded"), 2);
  EXPECT_EQ(count("NodesExecuted"), 0);
  EXPECT_EQ(context_.pending_nodes(), 3) << "and a leaf";
}

TEST_F(DeviceContextTest, OneReadRunsEverythingOnce) {
  const at::Tensor y = x + x;
  const at::Tensor z = y * x;
  expect_equal(z, 2 * cpu * cpu);
  EXPECT_EQ(state_of(y), State::kSubmitted);
  expect_equal(y, 2 * cpu);
  EXPECT_EQ(count("Flush"), 1);
  EXPECT_EQ(count("NodesExecuted"), 2);
  EXPECT_EQ(context_.pending_nodes(), 0);
  EXPECT_EQ(count("FallbackTotal"), 0);
}

TEST_F(DeviceContextTest, ReadsBytesUpToTheEndOfTheContents) {
  const at::Tensor y = x + x;
  float element = -1;
  EXPECT_TRUE(DeviceContext::read_bytes(storage_of(y), 5 * sizeof(float), sizeof(float), &element));
  EXPECT_EQ(element, 10);
  EXPECT_FALSE(DeviceContext::read_bytes(storage_of(y), 6 * sizeof(float), sizeof(float), &element));
  EXPECT_EQ(element, 10);
}

TEST_F(DeviceContextTest, FlushOfNothingIsNothing) {
  context_.synchronize();
  context_.synchronize();
  EXPECT_EQ(count("Flush"), 0);
}

TEST_F(DeviceContextTest, CountsWhatIsRecordedAndCompleted) {
  context_.synchronize();
  const uint64_t start = context_.recorded(0);
  EXPECT_EQ(context_.completed(0), start);
  const at::Tensor y = x + x;
  EXPECT_EQ(context_.recorded(0), start + 1);
  EXPECT_EQ(context_.completed(0), start);
  context_.synchronize();
  EXPECT_EQ(context_.completed(0), start + 1);
}

TEST_F(DeviceContextTest, DevicesAreIndependent) {
  const at::Tensor here = x + x;
  const at::Tensor there = to_lazy(cpu, 1) * 3;
  expect_equal(there, cpu * 3);
  EXPECT_EQ(state_of(here), State::kPending);
  EXPECT_EQ(count("Flush"), 1);
}

TEST_F(DeviceContextTest, SameStepIsCompiledOnce) {
  computation_cache().clear();
  at::Tensor weight = x + 0;
  context_.synchronize();
  reset_metrics();
  for (int i = 0; i < 4; ++i) {
    const at::Tensor a = weight * 2;
    const at::Tensor b = weight.t().mm(a);
    weight.add_(a, 0.1 * i);
    context_.synchronize();
  }
  EXPECT_EQ(count("Compile"), 1);
  EXPECT_EQ(count("CacheHit"), 3);
}

TEST_F(DeviceContextTest, RootsAreInOrderOfCreation) {
  computation_cache().clear();
  for (int i = 0; i < 4; ++i) {
    std::vector<at::Tensor> results;
    std::vector<at::Tensor> ballast(i * 7, at::empty({i + 1})); // other addresses each time
    for (int k = 0; k < 20; ++k) {
      results.push_back(x + k);
    }
    context_.synchronize();
    expect_equal(results[13], cpu + 13);
  }
  EXPECT_EQ(count("Compile"), 1);
}

TEST_F(DeviceContextTest, DeadResultsAreNotComputed) {
  {
    const at::Tensor dead = x.mm(x.t());
    const at::Tensor also_dead = dead * 2;
  }
  const at::Tensor y = x + x;
  context_.synchronize();
  EXPECT_EQ(count("NodesExecuted"), 1);
  expect_equal(y, cpu + cpu);
}

TEST_F(DeviceContextTest, WhatReadsADeadResultIsComputed) {
  at::Tensor y = x + x;
  const at::Tensor z = y * y;
  y.reset();
  expect_equal(z, 4 * cpu * cpu);
}

TEST_F(DeviceContextTest, ReadsBeforeAWriteSeeTheOldContents) {
  const at::Tensor before = x * 2;
  const at::Tensor view = x.t();
  x.add_(1);
  const at::Tensor after = view * 2;
  expect_equal(before, cpu * 2);
  expect_equal(after, (cpu + 1).t() * 2);
}

TEST_F(DeviceContextTest, WriteThroughAViewChangesTheStorage) {
  x.select(1, 0).add_(x.select(1, 2));
  at::Tensor expected = cpu.clone();
  expected.select(1, 0).add_(expected.select(1, 2));
  expect_equal(x, expected);
}

TEST_F(DeviceContextTest, StorageIsReadUnderTwoTypes) {
  const at::Tensor y = x * 2;
  const at::Tensor bits = y.view(at::kInt);
  const at::Tensor sum = bits + bits;
  bits.select(0, 0).mul_(0);
  expect_equal(sum, (cpu * 2).view(at::kInt) * 2);
  at::Tensor expected = cpu * 2;
  expected.select(0, 0).zero_();
  expect_equal(y, expected);
}

TEST_F(DeviceContextTest, CpuNumbersAreCopiedWhenTheyAreRecorded) {
  at::Tensor number = at::full({}, 3.F);
  const at::Tensor y = x * number;
  number.fill_(100);
  expect_equal(y, cpu * 3);
}

TEST_F(DeviceContextTest, LaunchBlockingRunsEachOp) {
  const ScopedFlag<bool> blocking(config().launch_blocking, true);
  const at::Tensor y = x + x;
  EXPECT_EQ(state_of(y), State::kSubmitted);
  EXPECT_THROW(test_ops::fail(x), c10::IndexError);
}

TEST_F(DeviceContextTest, EndlessLoopIsCutPeriodically) {
  const ScopedFlag<int64_t> min_nodes(config().min_cut_nodes, 40);
  const ScopedFlag<int64_t> max_nodes(config().max_pending_nodes, 200);
  computation_cache().clear();
  at::Tensor y = x + x;
  size_t most = 0;
  for (int i = 0; i < 1000; ++i) {
    y = (y * 0.5 + x) - 1;
    most = std::max(most, context_.pending_nodes());
  }
  EXPECT_LE(most, 200);
  EXPECT_GT(count("Flush"), 20);
  EXPECT_LE(count("Compile"), 4);
  at::Tensor expected = cpu + cpu;
  for (int i = 0; i < 1000; ++i) {
    expected = (expected * 0.5 + cpu) - 1;
  }
  expect_equal(y, expected);
}

TEST_F(DeviceContextTest, CallsOverListsOfTensorsCountForSeveral) {
  const ScopedFlag<int64_t> min_nodes(config().min_cut_nodes, 60);
  const ScopedFlag<int64_t> max_nodes(config().max_pending_nodes, 300);
  const std::vector<at::Tensor> many(80, cpu);
  const std::vector<at::Tensor> lazy(80, x);
  reset_metrics();
  at::Tensor joined;
  at::Tensor expected;
  for (int i = 0; i < 100; ++i) { // ten for each
    joined = at::cat(lazy);
    expected = at::cat(many);
  }
  EXPECT_GE(count("TraceCut"), 6); // one of 30 calls or two, until the place is known
  expect_equal(joined, expected);
}

TEST_F(DeviceContextTest, ReadOfAnEarlierPieceEndsTheStepAsWell) {
  const ScopedFlag<int64_t> chunk_nodes(config().chunk_nodes, 2);
  for (int step = 0; step < 8; ++step) {
    expect_equal(x + x, cpu * 2); // the stream remembers no longer steps of other tests
  }
  const auto chunk_runs_alone = [&](bool is_computed) {
    const at::Tensor first = x + x;
    const at::Tensor second = first + x;
    const bool is_cut = state_of(first) != State::kPending;
    const at::Tensor third = second + first;
    const at::Tensor fourth = third + first;
    EXPECT_EQ(state_of(fourth), State::kPending);
    if (is_computed && is_cut) {
      while (!DeviceContext::is_ready(*LazyStorageImpl::of(first))) {
        std::this_thread::yield();
      }
    }
    expect_equal(first, cpu * 2);
    EXPECT_EQ(context_.pending_nodes(), 0);
    expect_equal(second, cpu * 3);
    expect_equal(fourth, cpu * 7);
    return is_cut;
  };
  EXPECT_FALSE(chunk_runs_alone(false)) << "how long a step is must be known";
  EXPECT_TRUE(chunk_runs_alone(false));
  const int64_t compiled = count("Compile");
  for (const bool is_computed : {true, false, true}) {
    EXPECT_TRUE(chunk_runs_alone(is_computed));
  }
  EXPECT_EQ(count("Compile"), compiled);
}

TEST_F(DeviceContextTest, PendingMemoryIsBounded) {
  const ScopedFlag<int64_t> max_bytes(config().max_pending_bytes, 1000);
  std::vector<at::Tensor> results;
  for (int i = 0; i < 100; ++i) {
    results.push_back(x + i);
  }
  EXPECT_GE(count("Flush"), 2);
}

// ---- memory ----

TEST_F(DeviceContextTest, ResultsNeverShareMemory) {
  const at::Tensor y = test_ops::same(x);
  expect_equal(y, cpu);
  EXPECT_EQ(count("AliasedResultCopied"), 1);
  EXPECT_NE(y.mutable_data_ptr(), x.mutable_data_ptr());
  y.add_(1);
  expect_equal(x, cpu);
}

TEST_F(DeviceContextTest, AdoptReplacesContentsButNotWhatWasReadBefore) {
  const at::Tensor before = x * 2;
  at::Tensor memory = at::full({2, 3}, 9.F);
  context_.adopt(storage_of(x), memory.storage());
  EXPECT_EQ(state_of(x), State::kAvailable);
  EXPECT_EQ(x.mutable_data_ptr(), memory.data_ptr());
  expect_equal(before, cpu * 2);
  expect_equal(x * 2, at::full({2, 3}, 18.F));
}

TEST_F(DeviceContextTest, AdoptMakesAPendingResultUnnecessary) {
  const at::Tensor y = x + x;
  context_.adopt(storage_of(y), at::full({2, 3}, 9.F).storage());
  context_.synchronize();
  EXPECT_EQ(count("NodesExecuted"), 0);
  expect_equal(y, at::full({2, 3}, 9.F));
}

TEST_F(DeviceContextTest, MemoryForWritingIsReadByNothingPending) {
  const at::Tensor y = x * 2;
  DeviceContext::materialize(storage_of(x));
  EXPECT_EQ(state_of(y), State::kPending);
  DeviceContext::materialize_for_write(storage_of(x));
  EXPECT_EQ(state_of(y), State::kSubmitted);
}

TEST_F(DeviceContextTest, ResizeKeepsContentsAsFarAsTheyFit) {
  const at::Tensor y = x * 2;
  DeviceContext::resize(storage_of(y), 16 * 4);
  EXPECT_EQ(y.storage().nbytes(), 16 * 4);
  expect_equal(y, cpu * 2);
  DeviceContext::resize(storage_of(y), 3 * 4);
  expect_equal(y.select(0, 0), (cpu * 2).select(0, 0));
}

TEST_F(DeviceContextTest, ResizeOfUnusedStorageAllocatesNothing) {
  const at::Tensor y = at::empty({2}, on_lazy());
  DeviceContext::resize(storage_of(y), 400);
  EXPECT_EQ(state_of(y), State::kUnallocated);
  EXPECT_EQ(y.storage().nbytes(), 400);
}

TEST_F(DeviceContextTest, ResizeDoesNotDisturbPendingReaders) {
  const at::Tensor y = x * 2;
  DeviceContext::resize(storage_of(x), 4);
  expect_equal(y, cpu * 2);
}

TEST_F(DeviceContextTest, ResizeOfAFixedStorageRaises) {
  auto storage = c10::make_intrusive<LazyStorageImpl>(8, lazy_device(0), /*resizable=*/false);
  EXPECT_TRUE(contains(
      error_of([&] { DeviceContext::resize(*storage, 16); }),
      "Trying to resize storage that is not resizable"));
}

// ---- errors ----

TEST_F(DeviceContextTest, ErrorSpoilsWhatDependsOnItAndNothingElse) {
  const at::Tensor failed = test_ops::fail(x);
  const at::Tensor dependent = failed + x;
  const at::Tensor independent = x * 2;
  expect_equal(independent, cpu * 2);
  EXPECT_THROW(dependent.cpu(), c10::IndexError);
  EXPECT_THROW(failed.cpu(), c10::IndexError);
}

TEST_F(DeviceContextTest, SynchronizeRaisesTheFirstErrorOnce) {
  const at::Tensor one = test_ops::fail(x);
  const at::Tensor two = test_ops::fail(x);
  EXPECT_THROW(context_.synchronize(), c10::IndexError);
  EXPECT_EQ(error_of([&] { context_.synchronize(); }), "none");
}

TEST_F(DeviceContextTest, FlushKeepsErrorsForWhoeverWaits) {
  const at::Tensor failed = test_ops::fail(x);
  EXPECT_EQ(error_of([&] { context_.flush(); }), "none");
  EXPECT_THROW(context_.synchronize(), c10::IndexError);
}

TEST_F(DeviceContextTest, ErrorThatWasSeenIsNotRaisedAgainBySynchronize) {
  const at::Tensor failed = test_ops::fail(x);
  EXPECT_THROW(failed.cpu(), c10::IndexError);
  EXPECT_EQ(error_of([&] { context_.synchronize(); }), "none");
}

TEST_F(DeviceContextTest, FailedWriteRaisesAtTheNextReadAndKeepsTheContents) {
  at::Tensor y = x * 2;
  test_ops::fail_(y);
  EXPECT_THROW(y.cpu(), c10::IndexError);
  expect_equal(y, cpu * 2);
  EXPECT_EQ(error_of([&] { context_.synchronize(); }), "none");
}

TEST_F(DeviceContextTest, ErrorTellsTheOp) {
  const at::Tensor failed = test_ops::fail(x);
  const std::string error = error_of([&] { failed.cpu(); });
  EXPECT_TRUE(contains(error, "failed on purpose")) << error;
  EXPECT_TRUE(contains(error, "while running lazyplug_backend_test::fail(Float[2, 3] strides=[3, 1])")) << error;
}

// ---- threads ----

TEST_F(DeviceContextTest, ThreadsRecordReadAndDropTensorsOfOneDevice) {
  run_in_threads(4, [&](int thread) {
    for (int i = 0; i < 60; ++i) {
      at::Tensor y = x + thread;
      const at::Tensor dropped = y * 3;
      y.mul_(i);
      if (i % 4 == thread) {
        ASSERT_TRUE(at::equal(y.cpu(), (cpu + thread) * i));
      }
    }
  });
  expect_equal(x, cpu);
}

TEST_F(DeviceContextTest, WritesOfSeveralThreadsToOneTensorAllHappen) {
  const at::Tensor sum = to_lazy(at::zeros({2}));
  run_in_threads(4, [&](int thread) {
    for (int i = 0; i < 100; ++i) {
      sum.add_(1);
      if (i % 25 == thread) {
        context_.synchronize();
      }
    }
  });
  expect_equal(sum, at::full({2}, 400.F));
}

TEST_F(DeviceContextTest, TensorsDieOnOtherThreadsWhileTheTraceIsFlushed) {
  std::vector<at::Tensor> tensors(400);
  std::atomic<bool> done{false};
  std::thread flusher([&] {
    while (!done) {
      context_.synchronize();
    }
  });
  run_in_threads(2, [&](int thread) {
    for (size_t i = thread; i < tensors.size(); i += 2) {
      tensors[i] = x + 1;
      tensors[i / 2 / 2 * 2 + thread].reset();
    }
  });
  done = true;
  flusher.join();
  expect_equal(x + 1, cpu + 1);
}

// Runs a trace that stops at `wait`, on another thread, for as long as this lives.
class HeldRun {
 public:
  explicit HeldRun(DeviceContext& context) : context_(context) {
    context.flush();
    gate_.await_arrival();
  }
  ~HeldRun() {
    release();
  }
  void release() {
    gate_.open();
    context_.synchronize();
  }

 private:
  DeviceContext& context_;
  test_ops::Gate gate_;
};

TEST_F(DeviceContextTest, StorageIsSubmittedUntilSomebodyLooks) {
  const at::Tensor y = test_ops::wait(x);
  HeldRun run(context_);
  EXPECT_EQ(state_of(y), State::kSubmitted);
  run.release();
  EXPECT_EQ(state_of(y), State::kSubmitted);
  DeviceContext::materialize(*LazyStorageImpl::of(y));
  EXPECT_EQ(state_of(y), State::kAvailable);
}

TEST_F(DeviceContextTest, OtherOpsAreRecordedWhileATraceRuns) {
  const at::Tensor y = test_ops::wait(x);
  HeldRun run(context_);
  const at::Tensor z = x + x;
  EXPECT_EQ(state_of(z), State::kPending);
  run.release();
  expect_equal(z, cpu + cpu);
}

TEST_F(DeviceContextTest, ReaderOfARunningStorageWaitsForIt) {
  const at::Tensor y = test_ops::wait(x);
  HeldRun run(context_);
  at::Tensor z;
  std::thread reader([&] { z = y + 1; });
  run.release();
  reader.join();
  expect_equal(z, cpu + 1);
}

TEST_F(DeviceContextTest, StorageMayDieWhileItRuns) {
  at::Tensor y = test_ops::wait(x);
  HeldRun run(context_);
  y.reset();
  run.release();
  expect_equal(x + 1, cpu + 1);
}

TEST_F(DeviceContextTest, CopyIntoARunningStorageIsNotOverwrittenByItsOldResult) {
  at::Tensor y = test_ops::wait(x);
  {
    HeldRun run(context_);
    // A copy may wait for the run, which therefore ends while it waits.
    std::thread copier([&] { y.copy_(at::full({2, 3}, 9.F)); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    run.release();
    copier.join();
  }
  expect_equal(y, at::full({2, 3}, 9.F));
}

} // namespace
} // namespace lazyplug
