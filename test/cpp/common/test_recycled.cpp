#include "common/recycled.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace lazyplug {
namespace {

struct Small : Recycled<Small> {
  explicit Small(int64_t value) : value(value) {}
  virtual ~Small() = default;
  int64_t value;
  int64_t more[5] = {};
};
struct Derived final : Small {
  using Small::Small;
  int64_t most[20] = {};
};

TEST(RecycledTest, ObjectsThatLiveHaveMemoryOfTheirOwn) {
  std::vector<std::unique_ptr<Small>> objects;
  for (int round = 0; round < 3; ++round) {
    for (int64_t i = 0; i < 10'000; ++i) {
      objects.push_back(i % 3 == 0 ? std::make_unique<Derived>(i) : std::make_unique<Small>(i));
    }
    for (int64_t i = 0; i < 10'000; ++i) {
      ASSERT_EQ(objects[i]->value, i);
    }
    objects.clear();
  }
}

TEST(RecycledTest, ObjectsMayDieOnAnotherThread) {
  std::vector<std::unique_ptr<Small>> objects;
  for (int round = 0; round < 3; ++round) {
    std::thread([&] {
      for (int64_t i = 0; i < 100; ++i) {
        objects.push_back(std::make_unique<Small>(i));
      }
    }).join();
    objects.clear();
  }
  std::thread([&] { objects.push_back(std::make_unique<Small>(7)); }).join();
  EXPECT_EQ(objects[0]->value, 7);
}

// With the thread's other variables, perhaps after what it keeps.
TEST(RecycledTest, ObjectsMayDieWithTheirThread) {
  static thread_local std::unique_ptr<Small> last;
  std::thread([] {
    last = std::make_unique<Small>(1);
    std::make_unique<Small>(2);
  }).join();
  EXPECT_EQ(last, nullptr) << "this thread has none";
}

} // namespace
} // namespace lazyplug
