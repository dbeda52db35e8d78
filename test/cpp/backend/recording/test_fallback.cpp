#include "backend/recording/fallback.h"

#include <torch/library.h>

#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"

namespace lazyplug {
namespace {

// Forces the ops it names, so that the tests do not depend on which Meta kernels there are.
class FallbackTest : public BackendTest {
 protected:
  const ScopedFlag<std::string> forced_{
      config().force_fallback,
      "aten::relu,aten::relu_,aten::cumsum,aten::sort,aten::cat,aten::split_with_sizes_copy,aten::uniform_,aten::full"};
  const at::Tensor cpu = iota({2, 3}) - 2;
  const at::Tensor x = to_lazy(cpu);
};

TEST_F(FallbackTest, RunsAtOnceAndCounts) {
  const at::Tensor y = x.relu();
  EXPECT_EQ(state_of(y), State::kAvailable);
  EXPECT_EQ(y.device(), lazy_device(0));
  EXPECT_EQ(count("FallbackTotal"), 1);
  EXPECT_EQ(count("aten::relu"), 1);
  EXPECT_EQ(count("NodesRecorded"), 0);
  expect_equal(y, cpu.relu());
}

TEST_F(FallbackTest, WaitsForItsArguments) {
  const at::Tensor y = (x * 2).relu();
  EXPECT_EQ(count("Flush"), 1);
  expect_equal(y, (cpu * 2).relu());
}

TEST_F(FallbackTest, ResultsAreRecordedUponAsAnyOther) {
  expect_equal(x.relu() + 1, cpu.relu() + 1);
  EXPECT_EQ(count("NodesExecuted"), 1);
}

TEST_F(FallbackTest, InPlaceWritesTheSameMemory) {
  at::Tensor y = x * 1;
  const void* address = y.mutable_data_ptr();
  EXPECT_TRUE(y.relu_().is_same(y));
  EXPECT_EQ(y.mutable_data_ptr(), address);
  expect_equal(y, cpu.relu());
}

TEST_F(FallbackTest, InPlaceOnAViewWritesItsPartOnly) {
  x.select(0, 0).relu_();
  at::Tensor expected = cpu.clone();
  expected.select(0, 0).relu_();
  expect_equal(x, expected);
}

TEST_F(FallbackTest, InPlaceDoesNotDisturbPendingReaders) {
  const at::Tensor before = x * 2;
  x.relu_();
  expect_equal(before, cpu * 2);
  expect_equal(x, cpu.relu());
}

TEST_F(FallbackTest, OutArgumentIsWritten) {
  at::Tensor out = at::empty({2, 3}, on_lazy());
  EXPECT_TRUE(at::cumsum_out(out, x, 1).is_same(out));
  expect_equal(out, cpu.cumsum(1));
}

TEST_F(FallbackTest, OutArgumentIsResized) {
  at::Tensor out = at::empty({0}, on_lazy());
  at::cumsum_out(out, x, 1);
  EXPECT_EQ(out.sizes(), cpu.sizes());
  EXPECT_EQ(out.storage().nbytes(), 6 * 4);
  expect_equal(out, cpu.cumsum(1));
  expect_equal(out * 2, cpu.cumsum(1) * 2);
}

TEST_F(FallbackTest, SeveralOutArguments) {
  at::Tensor values = at::empty({0}, on_lazy());
  at::Tensor indices = at::empty({0}, on_lazy(at::kLong));
  at::sort_out(values, indices, x, 1, /*descending=*/true);
  const auto [expected_values, expected_indices] = cpu.sort(1, true);
  expect_equal(values, expected_values);
  expect_equal(indices, expected_indices);
}

TEST_F(FallbackTest, ViewsShareTheStorage) {
  const at::Tensor row = test_ops::first_row(x);
  EXPECT_EQ(&storage_of(row), &storage_of(x));
  row.add_(100);
  expect_equal(x.select(0, 0), cpu.select(0, 0) + 100);
  EXPECT_EQ(count("lazyplug_backend_test::first_row"), 1);
}

TEST_F(FallbackTest, InPlaceMayResize) {
  at::Tensor y = x * 1;
  test_ops::grow_(y);
  EXPECT_EQ(y.sizes(), c10::IntArrayRef({3, 3}));
  expect_equal(y, at::cat({cpu, at::full({1, 3}, 7.F)}));
  expect_equal(y + 1, at::cat({cpu, at::full({1, 3}, 7.F)}) + 1);
}

TEST_F(FallbackTest, ListsInAndOut) {
  expect_equal(at::cat({x, x}), at::cat({cpu, cpu}));
  const auto parts = at::split_with_sizes_copy(x, {1, 2}, 1);
  ASSERT_EQ(parts.size(), 2);
  EXPECT_TRUE(is_lazy(parts[1]));
  expect_equal(parts[1], cpu.slice(1, 1));
}

TEST_F(FallbackTest, OutputsThatDependOnData) {
  expect_equal(at::nonzero(x), at::nonzero(cpu));
  EXPECT_EQ(count("aten::nonzero"), 1);
}

TEST_F(FallbackTest, CustomOpsWithoutMetaKernel) {
  expect_equal(test_ops::no_meta(x), cpu);
  EXPECT_EQ(count("lazyplug_backend_test::no_meta"), 1);
}

TEST_F(FallbackTest, FactoriesLandOnTheirDevice) {
  const at::Tensor y = at::full({2}, 5, at::TensorOptions(lazy_device(1)));
  EXPECT_EQ(y.device(), lazy_device(1));
  expect_equal(y, at::full({2}, 5).to(y.dtype()));
}

TEST_F(FallbackTest, RandomNumbersComeFromTheDevicesGenerator) {
  at::Generator generator = at::globalContext().defaultGenerator(lazy_device(0));
  const auto draw = [&] { return at::empty({8}, on_lazy()).uniform_(0, 1).cpu(); };
  generator.set_current_seed(5);
  const at::Tensor first = draw();
  EXPECT_FALSE(at::equal(draw(), first));
  generator.set_current_seed(5);
  EXPECT_TRUE(at::equal(draw(), first));
}

TEST_F(FallbackTest, ErrorOfTheOpIsRaisedAndNotCounted) {
  const std::string error = error_of([&] { at::cumsum(x, 7); });
  EXPECT_EQ(error, error_of([&] { at::cumsum(cpu, 7); }));
  EXPECT_EQ(count("FallbackTotal"), 0);
}

TEST_F(FallbackTest, RefusedOpsNameTheReasonAndDoNothing) {
  const ScopedFlag<std::string> refuse(config().fallback, "error");
  at::Tensor y = x * 1;
  const std::string error = error_of([&] { test_ops::grow_(y); });
  EXPECT_TRUE(contains(error, "lazyplug_backend_test::grow_ cannot be recorded: its Meta kernel cannot predict"))
      << error;
  EXPECT_THROW(test_ops::no_meta(y), c10::NotImplementedError);
  EXPECT_EQ(state_of(y), State::kPending);
  EXPECT_EQ(count("FallbackTotal"), 0);
}

TEST_F(FallbackTest, UsersMistakeIsRaisedAsInEagerEvenIfFallbacksAreRefused) {
  const ScopedFlag<std::string> refuse(config().fallback, "error");
  EXPECT_EQ(error_of([&] { x.mm(x); }), error_of([&] { cpu.mm(cpu); }));
}

TEST_F(FallbackTest, WarnsOncePerOp) {
  const ScopedFlag<std::string> warn(config().fallback, "warn");
  torch::Library library(torch::Library::FRAGMENT, "lazyplug_fallback", std::nullopt, __FILE__, __LINE__);
  library.def("find(Tensor x) -> Tensor", {at::Tag::dynamic_output_shape});
  library.impl("find", c10::DispatchKey::CPU, [](const at::Tensor& x) { return at::nonzero(x); });
  const auto find = c10::Dispatcher::singleton()
                        .findSchemaOrThrow("lazyplug_fallback::find", "")
                        .typed<at::Tensor(const at::Tensor&)>();
  Warnings warnings;
  find.call(x);
  find.call(x);
  ASSERT_EQ(warnings.messages.size(), 1);
  EXPECT_TRUE(
      contains(warnings.messages[0], "lazyplug_fallback::find runs on the CPU at once instead of being recorded"));
  EXPECT_TRUE(contains(warnings.messages[0], "output depends on data"));
}

TEST_F(FallbackTest, AliasSharesTheMemory) {
  const at::Tensor alias = cpu_alias(x.t(), Access::kRead);
  EXPECT_TRUE(alias.is_cpu());
  EXPECT_EQ(alias.data_ptr(), x.mutable_data_ptr());
  EXPECT_EQ(alias.strides(), x.t().strides());
}

TEST_F(FallbackTest, AdoptedTensorIsAvailableWithoutACopy) {
  const at::Tensor memory = iota({3, 2}).t();
  const void* address = memory.data_ptr();
  const at::Tensor lazy = adopt_cpu_tensor(memory, 1);
  EXPECT_EQ(lazy.device(), lazy_device(1));
  EXPECT_EQ(lazy.mutable_data_ptr(), address);
  expect_equal(lazy, iota({3, 2}).t());
}

} // namespace
} // namespace lazyplug
