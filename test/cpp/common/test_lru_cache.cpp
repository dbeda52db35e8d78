#include "common/lru_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace lazyplug {
namespace {

using Value = std::shared_ptr<int>;

Value make(int n) {
  return std::make_shared<int>(n);
}

TEST(LruCache, FindsWhatWasInserted) {
  LruCache<int, Value> cache(2);
  EXPECT_FALSE(cache.find(1).has_value());
  const Value one = make(1);
  EXPECT_EQ(cache.insert(1, one), one);
  EXPECT_EQ(cache.find(1), one);
  EXPECT_EQ(cache.hits(), 1);
  EXPECT_EQ(cache.misses(), 1);
}

TEST(LruCache, InsertReturnsTheEntryThatWasThereFirst) {
  LruCache<int, Value> cache(2);
  const Value first = cache.insert(1, make(1));
  EXPECT_EQ(cache.insert(1, make(2)), first);
  EXPECT_EQ(cache.size(), 1);
}

TEST(LruCache, EvictsTheLeastRecentlyUsed) {
  LruCache<int, Value> cache(2);
  cache.insert(1, make(1));
  cache.insert(2, make(2));
  cache.find(1);
  cache.insert(3, make(3));
  EXPECT_TRUE(cache.find(1).has_value());
  EXPECT_FALSE(cache.find(2).has_value());
  EXPECT_TRUE(cache.find(3).has_value());
  EXPECT_EQ(cache.evictions(), 1);
}

TEST(LruCache, InsertAndReplaceOfAnEntryRefreshIt) {
  LruCache<int, Value> cache(2);
  cache.insert(1, make(1));
  cache.insert(2, make(2));
  cache.insert(1, make(1));
  cache.insert(3, make(3));
  EXPECT_TRUE(cache.find(1).has_value());
  cache.replace(1, make(10));
  cache.find(3);
  cache.replace(1, make(11));
  cache.insert(4, make(4));
  EXPECT_EQ(*cache.find(1).value(), 11);
  EXPECT_FALSE(cache.find(3).has_value());
}

TEST(LruCache, ReplaceAddsWhatIsMissingWithinTheCapacity) {
  LruCache<int, Value> cache(1);
  cache.replace(1, make(1));
  cache.replace(2, make(2));
  EXPECT_EQ(cache.size(), 1);
  EXPECT_EQ(*cache.find(2).value(), 2);
}

TEST(LruCache, EraseAndClearAreNotEvictions) {
  LruCache<int, Value> cache(3);
  for (int i = 0; i < 3; ++i) {
    cache.insert(i, make(i));
  }
  EXPECT_TRUE(cache.erase(1));
  EXPECT_FALSE(cache.erase(1));
  EXPECT_EQ(cache.size(), 2);
  cache.clear();
  EXPECT_EQ(cache.size(), 0);
  EXPECT_EQ(cache.evictions(), 0);
  cache.insert(0, make(5));
  EXPECT_EQ(*cache.find(0).value(), 5);
}

TEST(LruCache, SmallerCapacityEvictsTheOldest) {
  LruCache<int, Value> cache(4);
  for (int i = 0; i < 4; ++i) {
    cache.insert(i, make(i));
  }
  cache.set_capacity(1);
  EXPECT_EQ(cache.capacity(), 1);
  EXPECT_EQ(cache.size(), 1);
  EXPECT_TRUE(cache.find(3).has_value());
  EXPECT_EQ(cache.evictions(), 3);
}

TEST(LruCache, RefusesToHoldNothing) {
  EXPECT_THROW((LruCache<int, Value>(0)), c10::ValueError);
  LruCache<int, Value> cache(1);
  EXPECT_THROW(cache.set_capacity(0), c10::ValueError);
}

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

TEST(LruCache, LooksUpByAnotherTypeOfKey) {
  LruCache<std::string, Value, TextHash> cache(1);
  cache.insert("relu", make(1));
  EXPECT_TRUE(cache.find(std::string_view("relu")).has_value());
}

// Uses the cache while it is destroyed, which would deadlock under the lock of the cache.
struct Reentrant {
  explicit Reentrant(LruCache<int, std::shared_ptr<Reentrant>>& cache) : cache(cache) {}
  ~Reentrant() {
    cache.size();
  }
  LruCache<int, std::shared_ptr<Reentrant>>& cache;
};

TEST(LruCache, DestroysValuesOutsideTheLock) {
  LruCache<int, std::shared_ptr<Reentrant>> cache(1);
  const auto value = [&] { return std::make_shared<Reentrant>(cache); };
  cache.insert(1, value());
  cache.insert(1, value());
  cache.insert(2, value());
  cache.replace(2, value());
  cache.erase(2);
  cache.insert(3, value());
  cache.clear();
  EXPECT_EQ(cache.size(), 0);
}

TEST(LruCache, ThreadsAgreeOnOneValuePerKey) {
  constexpr int kThreads = 4;
  constexpr int kKeys = 64;
  LruCache<int, Value> cache(kKeys);
  std::vector<std::vector<Value>> seen(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&cache, &mine = seen[t]] {
      for (int key = 0; key < kKeys; ++key) {
        mine.push_back(cache.insert(key, make(key)));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (int t = 1; t < kThreads; ++t) {
    EXPECT_EQ(seen[t], seen[0]);
  }
}

TEST(LruCache, StaysBoundedAndCorrectUnderContention) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 5000;
  LruCache<int, Value> cache(8);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&cache, t] {
      for (int i = 0; i < kRounds; ++i) {
        const int key = (i * (t + 1)) % 32;
        const auto found = cache.find(key);
        const Value value = found ? *found : cache.insert(key, make(key));
        ASSERT_EQ(*value, key);
        ASSERT_LE(cache.size(), 8);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(cache.hits() + cache.misses(), kThreads * kRounds);
}

TEST(LruCache, ListsWhatWasUsedLast) {
  LruCache<int, int> cache(3);
  for (int i = 1; i <= 3; ++i) {
    cache.insert(i, 10 * i);
  }
  cache.find(1);
  EXPECT_EQ(cache.most_recent(2), (std::vector<int>{10, 30}));
  EXPECT_EQ(cache.most_recent(9), (std::vector<int>{10, 30, 20}));
  EXPECT_EQ(cache.hits(), 1);
}

} // namespace
} // namespace lazyplug
