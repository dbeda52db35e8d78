// Wherever traces are cut, and however kernels lay out their results: the values are those of the CPU.
#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"

namespace lazyplug {
namespace {

using Tensors = std::vector<at::Tensor>;

class Schedules : public BackendTest, public testing::WithParamInterface<std::tuple<const char*, int64_t>> {
 protected:
  static constexpr int kRounds = 6;

  // Reads through views, writes through views and strides that were not promised, each across rounds.
  static Tensors program(const at::Tensor& x) {
    Tensors results;
    at::Tensor h = x * 1;
    for (int i = 0; i < kRounds; ++i) {
      const at::Tensor other = test_ops::transposed(h);
      const at::Tensor product = at::mm(other.t(), h);
      h = h + at::mm(other, product) * 1e-3;
      h.select(i % 2, 1).mul_(0.5);
      const auto [values, indices] = h.sort(0);
      h = h + values.flip({1});
      results.insert(results.end(), {other, product, h, values, indices});
    }
    return results;
  }

  void check() {
    const Tensors expected = program(cpu);
    const Tensors actual = program(to_lazy(cpu));
    context_.synchronize();
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_equal(actual[i], expected[i]);
    }
    EXPECT_EQ(count("FallbackTotal"), 0);
  }

  const std::string schedule_ = std::get<0>(GetParam());
  const ScopedFlag<std::string> schedule_flag_{config().schedule, schedule_};
  const ScopedFlag<int64_t> scramble_flag_{config().scramble, std::get<1>(GetParam())};
  const at::Tensor cpu = iota({4, 6}) / 24;
};

TEST_P(Schedules, ResultsAreThoseOfTheCpu) {
  for (int i = 0; i < 3; ++i) {
    check();
  }
}

TEST_P(Schedules, CutsAreThoseOfTheSchedule) {
  const int64_t first = static_cast<int64_t>(context_.recorded(/*stream=*/0));
  const int64_t arranged = count("ResultArranged");
  check();
  EXPECT_TRUE(count("ResultArranged") > arranged || config().scramble.get() == 0);
  const int64_t last = static_cast<int64_t>(context_.recorded(/*stream=*/0));
  const int64_t cuts = count("Sync/trace full");
  if (schedule_.starts_with("every:")) {
    const int64_t n = std::stoll(schedule_.substr(6));
    EXPECT_EQ(cuts, last / n - first / n);
  } else {
    EXPECT_EQ(cuts != 0, schedule_ != "never");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Any,
    Schedules,
    testing::Combine(
        testing::Values("never", "every:1", "every:2", "every:5", "random:1", "random:2", "random:3"),
        testing::Values(0, 1, 2)));

} // namespace
} // namespace lazyplug
