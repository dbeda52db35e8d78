#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

using View = std::function<at::Tensor(const at::Tensor&)>;

// Each view, taken on the device, is what it is on the CPU, shares the storage, records nothing, and is written
// through.
class NativeViews : public BackendTest {
 protected:
  void expect_view(const View& view, const at::Tensor& cpu = iota({2, 4})) {
    const at::Tensor lazy = to_lazy(cpu);
    const at::Tensor lazy_view = view(lazy);
    const at::Tensor cpu_view = view(cpu);
    EXPECT_EQ(count("NodesRecorded"), 0);
    EXPECT_EQ(&storage_of(lazy_view), &storage_of(lazy));
    EXPECT_EQ(lazy_view.strides(), cpu_view.strides());
    EXPECT_EQ(lazy_view.storage_offset(), cpu_view.storage_offset());
    expect_equal(lazy_view, cpu_view);
    lazy_view.mul_(2);
    cpu_view.mul_(2);
    expect_equal(lazy, cpu);
    EXPECT_EQ(count("FallbackTotal"), 0);
    reset_metrics();
  }
};

TEST_F(NativeViews, Geometry) {
  expect_view([](const at::Tensor& t) { return t.as_strided({2, 2}, {1, 2}, 3); });
  expect_view([](const at::Tensor& t) { return t.view({4, 2}); });
  expect_view([](const at::Tensor& t) { return t.view({-1}); });
  expect_view([](const at::Tensor& t) { return at::_reshape_alias(t, {8}, {1}); });
  expect_view([](const at::Tensor& t) { return t.reshape({4, 2}); });
  expect_view([](const at::Tensor& t) { return t.unfold(1, 2, 2); });
  expect_view([](const at::Tensor& t) { return t.t().select(0, 1); });
}

TEST_F(NativeViews, Types) {
  expect_view([](const at::Tensor& t) { return at::view_as_complex(t.view({2, 2, 2})); });
  const at::Tensor complex = at::complex(iota({3}), iota({3}) + 1);
  expect_view([](const at::Tensor& t) { return at::view_as_real(t); }, complex);
  expect_view([](const at::Tensor& t) { return at::imag(t); }, complex);
  expect_view([](const at::Tensor& t) { return t.view(at::kInt); }, at::ones({4}));
  expect_view([](const at::Tensor& t) { return t.view(at::kShort); }, iota({2, 2}));
}

TEST_F(NativeViews, LazyBits) {
  const at::Tensor complex = at::complex(iota({3}), iota({3}) + 1);
  expect_view([](const at::Tensor& t) { return at::conj(t); }, complex);
  expect_view([](const at::Tensor& t) { return at::imag(at::conj(t)); }, complex);
}

TEST_F(NativeViews, MistakesRaiseAsOnTheCpu) {
  const at::Tensor cpu = iota({2, 4});
  const at::Tensor lazy = to_lazy(cpu);
  for (const View& view : std::vector<View>{
           [](const at::Tensor& t) { return t.view({3, 3}); },
           [](const at::Tensor& t) { return t.t().view({8}); },
           [](const at::Tensor& t) { return t.unfold(0, 5, 1); },
           [](const at::Tensor& t) { return t.as_strided({2}, {1}, -1); },
           [](const at::Tensor& t) { return at::view_as_complex(t); }}) {
    const std::string expected = error_of([&] { view(cpu); });
    EXPECT_NE(expected, "none");
    EXPECT_EQ(error_of([&] { view(lazy); }), expected);
  }
}

TEST_F(NativeViews, ViewsOfPendingTensorsDoNotFlush) {
  const at::Tensor lazy = to_lazy(iota({2, 4}));
  const at::Tensor view = (lazy * 2).t().select(0, 3);
  EXPECT_EQ(count("Flush"), 0);
  expect_equal(view + 1, (iota({2, 4}) * 2).t().select(0, 3) + 1);
}

} // namespace
} // namespace lazyplug
