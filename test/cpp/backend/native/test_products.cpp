#include "test/cpp/backend/expect_same.h"

namespace lazyplug {
namespace {

at::Tensor complex_numbers(uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({4}, at::kComplexDouble);
}

class NativeProducts : public BackendTest {
 protected:
  // Whatever is conjugated, one product is recorded.
  template <typename Product>
  static void check(Product product, const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor x = to_lazy(a);
    const at::Tensor y = to_lazy(b);
    for (const bool left : {false, true}) {
      for (const bool right : {false, true}) {
        reset_metrics();
        const auto of = [&](const at::Tensor& first, const at::Tensor& second) {
          return product(left ? first.conj() : first, right ? second.conj() : second);
        };
        const at::Tensor actual = of(x, y);
        EXPECT_EQ(state_of(actual), State::kPending);
        EXPECT_EQ(count("NodesRecorded"), 1) << left << right;
        EXPECT_EQ(count("FallbackTotal"), 0) << left << right;
        expect_same(actual, of(a, b));
      }
    }
  }

  const at::Tensor a = complex_numbers(1);
  const at::Tensor b = complex_numbers(2);
};

TEST_F(NativeProducts, DotIsThatOfTheCpu) {
  check(at::dot, a, b);
}

TEST_F(NativeProducts, VdotIsThatOfTheCpu) {
  check(at::vdot, a, b);
}

TEST_F(NativeProducts, RealNumbersHaveNoConjugates) {
  const at::Tensor real = iota({4});
  check(at::dot, real, real + 1);
  check(at::vdot, real, real + 1);
  EXPECT_EQ(count("lazy::vdot"), 0);
}

TEST_F(NativeProducts, MistakesRaiseAsOnTheCpu) {
  const at::Tensor x = to_lazy(a);
  for (const auto product : {at::dot, at::vdot}) {
    EXPECT_EQ(error_of([&] { product(x, x.slice(0, 1)); }), error_of([&] { product(a, a.slice(0, 1)); }));
    EXPECT_EQ(error_of([&] { product(x.conj(), to_lazy(iota({4}))); }), error_of([&] {
                product(a.conj(), iota({4}));
              }));
  }
  EXPECT_EQ(count("NodesRecorded"), 0);
}

} // namespace
} // namespace lazyplug
