#include "backend/native/deterministic.h"

#include <ATen/Context.h>

#include <limits>

#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class NativeDeterministic : public BackendTest {
 protected:
  void TearDown() override {
    set(false, /*fill=*/true);
    EXPECT_EQ(count("FallbackTotal"), 0);
  }
  static void set(bool deterministic, bool fill) {
    at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(fill);
  }
};

TEST_F(NativeDeterministic, BothSettingsAreNeeded) {
  for (const bool deterministic : {false, true}) {
    for (const bool fill : {false, true}) {
      set(deterministic, fill);
      EXPECT_EQ(native::fills_uninitialized_memory(), deterministic && fill);
      const at::Tensor tensor = at::empty({2, 3}, on_lazy());
      EXPECT_EQ(state_of(tensor), deterministic && fill ? State::kPending : State::kUnallocated);
    }
  }
}

TEST_F(NativeDeterministic, FloatingPointMemoryBecomesNan) {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kComplexDouble}) {
    const at::Tensor tensor = at::empty({2, 3}, on_lazy(dtype));
    native::fill_uninitialized(tensor);
    EXPECT_TRUE(tensor.cpu().isnan().all().item<bool>()) << dtype;
  }
}

TEST_F(NativeDeterministic, OtherMemoryBecomesTheLargestNumber) {
  const at::Tensor integers = at::empty({3}, on_lazy(at::kInt));
  native::fill_uninitialized(integers);
  EXPECT_TRUE(at::equal(integers.cpu(), at::full({3}, std::numeric_limits<int32_t>::max(), at::kInt)));
  const at::Tensor bools = at::empty({3}, on_lazy(at::kBool));
  native::fill_uninitialized(bools);
  EXPECT_TRUE(at::equal(bools.cpu(), at::ones({3}, at::kBool)));
}

TEST_F(NativeDeterministic, OnlyThatPartIsFilledAndThatIsRecorded) {
  const at::Tensor tensor = to_lazy(iota({4}));
  native::fill_uninitialized(tensor.slice(0, 2));
  EXPECT_EQ(state_of(tensor), State::kPending);
  EXPECT_EQ(count("NodesRecorded"), 1);
  const at::Tensor filled = tensor.cpu();
  EXPECT_TRUE(at::equal(filled.slice(0, 0, 2), iota({2})));
  EXPECT_TRUE(filled.slice(0, 2).isnan().all().item<bool>());
}

} // namespace
} // namespace lazyplug
