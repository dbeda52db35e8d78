#include <ATen/ops/linalg_lu_factor.h>
#include <ATen/ops/linalg_lu_solve.h>

#include "test/cpp/backend/expect_same.h"

namespace lazyplug {
namespace {

class NativeLuSolve : public BackendTest {
 protected:
  // One call is recorded, whichever side the matrix is on.
  static void check(const at::Tensor& lu, const at::Tensor& pivots, const at::Tensor& b) {
    for (const bool left : {false, true}) {
      for (const bool adjoint : {false, true}) {
        reset_metrics();
        const at::Tensor actual = at::linalg_lu_solve(to_lazy(lu), to_lazy(pivots), to_lazy(b), left, adjoint);
        EXPECT_EQ(count("lazy::linalg_lu_solve"), 1) << left << adjoint;
        EXPECT_EQ(count("FallbackTotal"), 0) << left << adjoint;
        expect_same(actual, at::linalg_lu_solve(lu, pivots, b, left, adjoint));
      }
    }
  }

  static std::string mistake(const at::Tensor& lu, const at::Tensor& pivots, const at::Tensor& b) {
    return error_of([&] { at::linalg_lu_solve(lu, pivots, b, /*left=*/false); });
  }

  NativeLuSolve() {
    at::manual_seed(1);
    std::tie(lu, pivots) = at::linalg_lu_factor(at::randn({3, 3}, at::kComplexDouble));
  }

  at::Tensor lu, pivots;
};

TEST_F(NativeLuSolve, ResultsAreConjugateViewsAsOnTheCpu) {
  check(lu, pivots, at::randn({3, 3}, at::kComplexDouble));
  check(lu, pivots, at::randn({2, 3, 3}, at::kComplexDouble));
  check(lu, pivots, at::randn({3, 3}, at::kComplexDouble).mH());
}

TEST_F(NativeLuSolve, OutBecomesAConjugateViewAsOnTheCpu) {
  const Warnings about_resizing;
  const at::Tensor b = at::randn({2, 3}, at::kComplexDouble);
  for (const at::Tensor& out : {at::empty({2, 3}), at::empty({0}), at::empty({4, 5}), at::empty({3, 2}).mT()}) {
    at::Tensor expected = at::empty_strided(out.sizes(), out.strides(), at::kComplexDouble);
    at::Tensor actual = to_lazy(expected);
    const auto solve = [](at::Tensor& into, const at::Tensor& lu, const at::Tensor& pivots, const at::Tensor& b) {
      at::linalg_lu_solve_out(into, lu, pivots, b, /*left=*/false);
    };
    solve(expected, lu, pivots, b);
    solve(actual, to_lazy(lu), to_lazy(pivots), to_lazy(b));
    expect_same(actual, expected);
  }
}

TEST_F(NativeLuSolve, OutOfAnotherDtypeRaisesAsOnTheCpu) {
  at::Tensor out = at::empty({3, 3});
  at::Tensor lazy = to_lazy(out);
  const at::Tensor b = at::randn({3, 3}, at::kComplexDouble);
  EXPECT_EQ(
      error_of([&] { at::linalg_lu_solve_out(lazy, to_lazy(lu), to_lazy(pivots), to_lazy(b), false); }),
      error_of([&] { at::linalg_lu_solve_out(out, lu, pivots, b, false); }));
}

TEST_F(NativeLuSolve, RealNumbersHaveNoConjugates) {
  const auto [real, real_pivots] = at::linalg_lu_factor(at::randn({3, 3}));
  check(real, real_pivots, at::randn({2, 3, 3}));
}

TEST_F(NativeLuSolve, WithoutElementsThereIsNothingToConjugate) {
  check(lu, pivots, at::randn({0, 3, 3}, at::kComplexDouble));
  check(lu.expand({0, 3, 3}), pivots.expand({0, 3}), at::randn({1, 3, 3}, at::kComplexDouble));
}

TEST_F(NativeLuSolve, MistakesRaiseAsOnTheCpu) {
  for (const auto& b : {at::ones({3, 4}), at::ones({3}), at::ones({3, 3}), at::ones({2, 3, 3}).to(at::kComplexFloat)}) {
    EXPECT_EQ(mistake(to_lazy(lu), to_lazy(pivots), to_lazy(b)), mistake(lu, pivots, b));
    const at::Tensor complex = b.to(at::kComplexDouble);
    EXPECT_EQ(
        mistake(to_lazy(lu), to_lazy(pivots.slice(0, 1)), to_lazy(complex)),
        mistake(lu, pivots.slice(0, 1), complex));
  }
}

} // namespace
} // namespace lazyplug
