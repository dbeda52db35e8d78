#include "common/fork_safe_mutex.h"

#include "common/config.h"
#include "common/logging.h"
#include "common/lru_cache.h"
#include "common/metrics.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace lazyplug {
namespace {

constexpr int kForks = 20;         // a second each under the thread sanitizer
constexpr unsigned kPatience = 60; // seconds until a child is taken to hang, and ended by a signal

template <typename Check>
bool true_in_child(Check check) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kPatience);
    _exit(check() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Calls functions on threads of their own, again and again, while its scope lasts.
class Busy {
 public:
  explicit Busy(const std::vector<std::function<void()>>& functions) {
    for (const auto& function : functions) {
      threads_.emplace_back([this, function] {
        while (!done_) {
          function();
        }
      });
    }
  }
  ~Busy() {
    done_ = true;
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

 private:
  std::atomic<bool> done_{false};
  std::vector<std::thread> threads_;
};

TEST(ForkSafeMutex, IsFreeInEveryChild) {
  ForkSafeMutex mutex;
  int64_t a = 0;
  int64_t b = 0;
  const Busy busy({[&] {
    const ForkSafeLock lock(mutex);
    ++a;
    ++b;
  }});
  for (int i = 0; i < kForks; ++i) {
    EXPECT_TRUE(true_in_child([&] {
      const ForkSafeLock lock(mutex);
      return a == b; // whole
    }));
  }
}

TEST(ForkSafeMutex, MayComeAndGoWhileOthersFork) {
  const Busy busy({[] {
    ForkSafeMutex mutex;
    const ForkSafeLock lock(mutex);
  }});
  for (int i = 0; i < kForks; ++i) {
    EXPECT_TRUE(true_in_child([] {
      ForkSafeMutex mutex;
      const ForkSafeLock lock(mutex);
      return true;
    }));
  }
}

TEST(ForkSafeMutex, GuardsFlagsMetricsAndCaches) {
  const std::string before = config().log_level.get();
  LruCache<int, int> cache(8);
  std::atomic<int> n{0};
  {
    const Busy busy(
        {[] { config().log_level.set("error"); },
         [] { counter("Fork").add(); },
         [] { timer("Fork").record(1); },
         [&] { cache.replace(++n % 16, n); }});
    for (int i = 0; i < kForks; ++i) {
      EXPECT_TRUE(true_in_child([&] {
        const int last = 1000;
        cache.insert(last, last);
        log_debug("not shown");
        counter("Child").add();
        return config().log_level.get() != "" && cache.find(last) == last && !metrics_report().empty() &&
               counter_value("Child") == 1;
      }));
    }
  }
  config().log_level.set(before);
}

} // namespace
} // namespace lazyplug
