#include "device/generator.h"

#include "device/runtime.h"
#include "test/cpp/device/fake_executor.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <bit>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace lazyplug {
namespace {

at::Generator seeded(uint64_t seed) {
  at::Generator generator = at::make_generator<LazyGeneratorImpl>(0);
  generator.set_current_seed(seed);
  return generator;
}

TEST(Generator, SeedingResetsTheOffset) {
  at::Generator generator = seeded(1);
  generator.set_offset(7);
  generator.set_current_seed(2);
  EXPECT_EQ(generator.current_seed(), 2);
  EXPECT_EQ(generator.get_offset(), 0);
}

TEST(Generator, SeedsFollowFromTheState) {
  at::Generator a = seeded(5);
  at::Generator b = seeded(5);
  const uint64_t first = next_seed(a, 0);
  EXPECT_EQ(first, next_seed(b, 0));
  EXPECT_EQ(a.get_offset(), 1);
  const uint64_t second = next_seed(a, 0);
  EXPECT_NE(first, second);
  b.set_offset(1);
  EXPECT_EQ(second, next_seed(b, 0));
}

TEST(Generator, GraphsafeStatesAreShared) {
  at::Generator a = seeded(5);
  const at::Generator sharing = a.graphsafe_get_state();
  next_seed(a, 0);
  EXPECT_EQ(sharing.get_offset(), 1);

  at::Generator b = seeded(9);
  b.graphsafe_set_state(a);
  next_seed(b, 0);
  EXPECT_EQ(a.get_offset(), 2);
  b.graphsafe_set_state(seeded(9));
  next_seed(b, 0);
  EXPECT_EQ(a.get_offset(), 2);
  EXPECT_THROW(b.graphsafe_set_state(at::detail::createCPUGenerator()), c10::Error);
}

// Every (seed, offset) of a small square gets a seed of its own, whose bits look random.
TEST(Generator, SeedsAreWellMixed) {
  constexpr int kSide = 128;
  std::set<uint64_t> seeds;
  int64_t ones = 0;
  for (int seed = 0; seed < kSide; ++seed) {
    at::Generator generator = seeded(seed);
    for (int i = 0; i < kSide; ++i) {
      const uint64_t seed = next_seed(generator, 0);
      seeds.insert(seed);
      ones += std::popcount(seed);
    }
  }
  EXPECT_EQ(seeds.size(), kSide * kSide);
  EXPECT_NEAR(static_cast<double>(ones) / (kSide * kSide), 32, 0.1);
}

TEST(Generator, StateRoundTrips) {
  at::Generator generator = seeded(11);
  next_seed(generator, 0);
  const at::Tensor state = generator.get_state();
  EXPECT_EQ(state.numel(), 16);
  EXPECT_TRUE(state.device().is_cpu());
  const uint64_t expected = next_seed(generator, 0);
  at::Generator restored = seeded(0);
  restored.set_state(state);
  EXPECT_EQ(next_seed(restored, 0), expected);
}

TEST(Generator, BadStatesAreRefused) {
  at::Generator generator = seeded(11);
  EXPECT_THROW(generator.set_state(at::empty({8}, at::kByte)), c10::Error);
  EXPECT_THROW(generator.set_state(at::empty({16}, at::kFloat)), c10::TypeError);
  EXPECT_EQ(generator.current_seed(), 11);
}

TEST(Generator, CloneIsIndependent) {
  at::Generator generator = seeded(3);
  next_seed(generator, 0);
  at::Generator clone = generator.clone();
  EXPECT_TRUE(at::equal(clone.get_state(), generator.get_state()));
  next_seed(clone, 0);
  EXPECT_EQ(generator.get_offset(), 1);
}

TEST(Generator, SeedFromEntropyChanges) {
  at::Generator generator = seeded(3);
  const uint64_t first = generator.seed();
  EXPECT_EQ(generator.current_seed(), first);
  EXPECT_NE(generator.seed(), first);
}

TEST(Generator, EachDeviceHasADefault) {
  EXPECT_NE(default_generator(0), default_generator(1));
  EXPECT_EQ(default_generator(1).device(), lazy_device(1));
  EXPECT_EQ(default_generator(-1), default_generator(current_device()));
  EXPECT_THROW(default_generator(kTestDevices), c10::Error);
}

TEST(Generator, DefaultIsUsedWhenNoneIsGiven) {
  at::Generator generator = default_generator(1);
  generator.set_current_seed(9);
  EXPECT_EQ(next_seed(std::nullopt, 1), next_seed(seeded(9), 0));
  EXPECT_EQ(generator.get_offset(), 1);
}

TEST(Generator, GeneratorOfAnotherDeviceIsRefused) {
  EXPECT_THROW(next_seed(at::make_generator<at::CPUGeneratorImpl>(), 0), c10::Error);
}

TEST(Generator, ThreadsGetDifferentSeeds) {
  constexpr int kThreads = 4;
  constexpr int kDraws = 1000;
  at::Generator generator = seeded(1);
  std::mutex mutex;
  std::set<uint64_t> seeds;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kDraws; ++i) {
        const uint64_t seed = next_seed(generator, 0);
        std::lock_guard<std::mutex> lock(mutex);
        seeds.insert(seed);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(seeds.size(), kThreads * kDraws);
  EXPECT_EQ(generator.get_offset(), kThreads * kDraws);
}

} // namespace
} // namespace lazyplug
