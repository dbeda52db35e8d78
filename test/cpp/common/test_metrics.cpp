#include "common/metrics.h"

#include "test/cpp/common/run_in_threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace lazyplug {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_text(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Metrics : public testing::Test {
 protected:
  void SetUp() override {
    reset_metrics();
  }
};

TEST_F(Metrics, CounterCounts) {
  Counter& calls = counter("calls");
  calls.add();
  calls.add(41);
  EXPECT_EQ(calls.value(), 42);
  EXPECT_EQ(counter_value("calls"), 42);
}

TEST_F(Metrics, SameNameIsTheSameMetric) {
  EXPECT_EQ(&counter("same"), &counter("same"));
  EXPECT_NE(&counter("same"), &counter("other"));
  EXPECT_EQ(&timer("same"), &timer("same"));
}

TEST_F(Metrics, LookingAtAValueDoesNotMakeTheMetric) {
  EXPECT_EQ(counter_value("never made"), std::nullopt);
  EXPECT_EQ(timer_stats("never made"), std::nullopt);
  EXPECT_EQ(counter_value("never made"), std::nullopt);
}

TEST_F(Metrics, NamesAreSortedAndOnlyThoseThatCounted) {
  counter("b").add();
  counter("a").add();
  counter("unused");
  EXPECT_EQ(counter_names(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(Metrics, AMetricThatCountedNothingHasNoValue) {
  counter("unused");
  timer("unused");
  EXPECT_EQ(counter_value("unused"), std::nullopt);
  EXPECT_EQ(timer_stats("unused"), std::nullopt);
}

TEST_F(Metrics, ResetZeroesAndKeepsReferences) {
  Counter& kept = counter("kept");
  kept.add(3);
  timer("slept").record(5);
  reset_metrics();
  EXPECT_EQ(counter_value("kept"), std::nullopt);
  EXPECT_FALSE(contains(counter_names(), "kept"));
  EXPECT_TRUE(timer_names().empty());
  kept.add();
  EXPECT_EQ(counter_value("kept"), 1);
}

TEST_F(Metrics, TimerKeepsCountTotalAndExtremes) {
  Timer& run = timer("run");
  EXPECT_EQ(run.stats().min_ns, 0);
  for (int64_t ns : {30, 10, 20}) {
    run.record(ns);
  }
  const TimerStats stats = timer_stats("run").value();
  EXPECT_EQ(stats.count, 3);
  EXPECT_EQ(stats.total_ns, 60);
  EXPECT_EQ(stats.min_ns, 10);
  EXPECT_EQ(stats.max_ns, 30);
}

TEST_F(Metrics, TimerScopeRecordsItsLifetime) {
  const auto start = std::chrono::steady_clock::now();
  {
    TimerScope scope(timer("scope"));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const std::chrono::nanoseconds around = std::chrono::steady_clock::now() - start;
  const TimerStats stats = timer("scope").stats();
  EXPECT_EQ(stats.count, 1);
  EXPECT_GE(stats.total_ns, 2'000'000);
  EXPECT_LE(stats.total_ns, around.count());
}

TEST_F(Metrics, ReportsNameEveryMetricAndItsValue) {
  counter("CacheHit").add(7);
  timer("Compile").record(2'500'000);
  timer("Compile").record(1'500);
  EXPECT_TRUE(has_text(metrics_report(), "Counter: CacheHit\n  Value: 7\n")) << metrics_report();
  EXPECT_TRUE(has_text(metrics_report(), "Metric: Compile\n  TotalSamples: 2\n  Accumulator: 2.502ms\n"))
      << metrics_report();
  EXPECT_TRUE(has_text(metrics_report(), "  Min: 1.500us\n  Max: 2.500ms\n")) << metrics_report();
  EXPECT_EQ(short_report(), "Compile: 2 x 1.251ms\nCacheHit: 7\n");
}

TEST_F(Metrics, ThreadsShareMetricsWithoutLosingSamples) {
  constexpr int kThreads = 4;
  constexpr int kSamples = 5000;
  run_in_threads(kThreads, [](int thread) {
    for (int i = 0; i < kSamples; ++i) {
      counter("shared").add();
      counter("of thread " + std::to_string(thread)).add();
      timer("shared").record(1 + thread * kSamples + i);
    }
  });
  EXPECT_EQ(counter_value("shared"), kThreads * kSamples);
  EXPECT_EQ(counter_names().size(), 1 + kThreads);
  const TimerStats stats = timer("shared").stats();
  EXPECT_EQ(stats.count, kThreads * kSamples);
  EXPECT_EQ(stats.min_ns, 1);
  EXPECT_EQ(stats.max_ns, kThreads * kSamples);
}

} // namespace
} // namespace lazyplug
