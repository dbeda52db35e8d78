#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class NativeCopies : public BackendTest {
 protected:
  void TearDown() override {
    EXPECT_EQ(count("FallbackTotal"), 0);
  }

  const at::Tensor cpu = iota({2, 3});
  const at::Tensor x = to_lazy(cpu);
};

TEST_F(NativeCopies, FromTheCpuIsASnapshot) {
  at::Tensor source = iota({2, 3});
  const at::Tensor lazy = to_lazy(source);
  EXPECT_EQ(state_of(lazy), State::kAvailable);
  source.fill_(9);
  expect_equal(lazy, cpu);
  EXPECT_EQ(count("NodesRecorded"), 0);
}

TEST_F(NativeCopies, FromTheCpuConverts) {
  for (const at::Tensor& source :
       {iota({3, 2}).t(), iota({2, 3}).to(at::kLong), iota({3}), at::full({}, 2.F), iota({2, 1}).expand({2, 3})}) {
    at::Tensor lazy = at::empty({2, 3}, on_lazy(at::kDouble));
    lazy.copy_(source);
    expect_equal(lazy, at::empty({2, 3}, at::kDouble).copy_(source));
  }
}

TEST_F(NativeCopies, FromTheCpuKeepsTheStridesOfTheTarget) {
  at::Tensor lazy = at::empty({3, 2}, on_lazy()).t();
  lazy.copy_(cpu);
  EXPECT_EQ(lazy.strides(), c10::IntArrayRef({1, 2}));
  expect_equal(lazy, cpu);
}

TEST_F(NativeCopies, FromTheCpuIntoAPartIsRecorded) {
  at::Tensor source = at::full({2}, 7.F);
  x.select(1, 2).copy_(source);
  source.fill_(0);
  EXPECT_EQ(count("NodesRecorded"), 1);
  at::Tensor expected = cpu.clone();
  expected.select(1, 2).fill_(7);
  expect_equal(x, expected);
}

TEST_F(NativeCopies, FromTheCpuIntoBits) {
  const at::Tensor complex = at::complex(iota({2}), iota({2}) + 1);
  at::Tensor lazy = to_lazy(at::zeros({2}, at::kComplexFloat));
  at::conj(lazy).copy_(complex);
  expect_equal(lazy, at::conj(complex).resolve_conj());
  at::imag(at::conj(lazy)).copy_(at::full({2}, 5.F));
  expect_equal(at::imag(lazy).clone(), at::full({2}, -5.F));
}

TEST_F(NativeCopies, ElementsAreReadOfEveryDtypeAndPlace) {
  for (const auto dtype :
       {at::kBool,
        at::kByte,
        at::kChar,
        at::kShort,
        at::kInt,
        at::kLong,
        at::kHalf,
        at::kBFloat16,
        at::kFloat,
        at::kDouble,
        at::kComplexFloat,
        at::kUInt16}) {
    const at::Tensor numbers = iota({2, 3}).to(dtype);
    const at::Tensor lazy = to_lazy(numbers);
    for (int64_t row = 0; row < 2; ++row) {
      const at::Scalar element = lazy.t().select(1, row).select(0, 1).item();
      const at::Scalar expected = numbers.select(0, row).select(0, 1).item();
      EXPECT_EQ(element.toComplexDouble(), expected.toComplexDouble()) << dtype << row;
      EXPECT_EQ(element.type(), expected.type()) << dtype;
    }
  }
  const at::Tensor i = to_lazy(at::complex(iota({2}), iota({2}) + 1));
  EXPECT_EQ(at::conj(i).select(0, 1).item().toComplexDouble(), c10::complex<double>(1, -2));
  EXPECT_EQ(at::imag(at::conj(i)).select(0, 0).item().toDouble(), -1);
}

TEST_F(NativeCopies, ElementsOfResultsAreReadWhenTheyAreThere) {
  EXPECT_EQ((x + x).select(0, 1).select(0, 2).item().toFloat(), 10);
  EXPECT_EQ(count("NodesExecuted"), 1);
  EXPECT_EQ(count("ScalarRead"), 1);
}

TEST_F(NativeCopies, FromTheCpuDoesNotChangeWhatWasReadBefore) {
  const at::Tensor before = x * 2;
  at::Tensor y = x;
  y.copy_(at::full({2, 3}, 9.F));
  expect_equal(before, cpu * 2);
  expect_equal(x, at::full({2, 3}, 9.F));
}

TEST_F(NativeCopies, ToTheCpuConvertsAndCounts) {
  at::Tensor target = at::empty({3, 2}, at::kDouble).t();
  target.copy_(x * 2);
  EXPECT_TRUE(at::equal(target, (cpu * 2).to(at::kDouble)));
  EXPECT_EQ(count("CopyToHost"), 1);
  EXPECT_EQ(count("Flush"), 1);
}

TEST_F(NativeCopies, ToTheCpuResolvesBits) {
  const at::Tensor complex = at::complex(iota({2}), iota({2}) + 1);
  expect_equal(at::conj(to_lazy(complex)), at::conj(complex).resolve_conj());
  expect_equal(at::imag(at::conj(to_lazy(complex))), at::imag(at::conj(complex)).clone());
}

TEST_F(NativeCopies, WithinTheDeviceIsRecorded) {
  at::Tensor y = at::empty({2, 3}, on_lazy(at::kDouble));
  y.copy_(x);
  EXPECT_EQ(count("NodesRecorded"), 1);
  EXPECT_EQ(count("Flush"), 0);
  x.add_(1);
  expect_equal(y, cpu.to(at::kDouble));
  expect_equal(x.to(at::kInt), (cpu + 1).to(at::kInt));
  expect_equal(x.clone(), cpu + 1);
}

TEST_F(NativeCopies, BetweenDevices) {
  const at::Tensor there = to_lazy(x * 2, 1);
  EXPECT_EQ(there.device(), lazy_device(1));
  x.add_(1);
  expect_equal(there, cpu * 2);
}

TEST_F(NativeCopies, OfItselfIsNothing) {
  at::Tensor y = x;
  y.copy_(x);
  EXPECT_EQ(count("NodesRecorded"), 0);
}

TEST_F(NativeCopies, WrongShapesRaiseAsOnTheCpu) {
  at::Tensor lazy = at::empty({2, 3}, on_lazy());
  at::Tensor host = at::empty({2, 3});
  const std::string expected = error_of([&] { host.copy_(at::ones({4})); });
  EXPECT_EQ(error_of([&] { lazy.copy_(at::ones({4})); }), expected);
  EXPECT_EQ(error_of([&] { lazy.copy_(to_lazy(at::ones({4}))); }), expected);
  EXPECT_EQ(error_of([&] { host.copy_(to_lazy(at::ones({4}))); }), expected);
}

TEST_F(NativeCopies, WrongShapesRaiseAsOnTheCpuEvenIfTheTargetIsEmpty) {
  at::Tensor lazy = at::empty({0, 3}, on_lazy());
  at::Tensor host = at::empty({0, 3});
  EXPECT_EQ(error_of([&] { lazy.copy_(at::ones({4})); }), error_of([&] { host.copy_(at::ones({4})); }));
}

TEST_F(NativeCopies, WrongShapesRaiseAsOnTheCpuForAPartOfAStorage) {
  at::Tensor lazy = to_lazy(iota({4, 3})).slice(0, 0, 2);
  at::Tensor host = iota({4, 3}).slice(0, 0, 2);
  EXPECT_EQ(error_of([&] { lazy.copy_(at::ones({4})); }), error_of([&] { host.copy_(at::ones({4})); }));
}

TEST_F(NativeCopies, EmptyTensors) {
  expect_equal(to_lazy(at::empty({0, 3})), at::empty({0, 3}));
}

TEST_F(NativeCopies, AndResize) {
  at::Tensor target = at::empty({0}, on_lazy());
  at::_copy_from_and_resize(cpu, target);
  expect_equal(target, cpu);
}

TEST_F(NativeCopies, ItemReadsOneNumber) {
  EXPECT_EQ((x.sum() * 2).item<float>(), 30);
  EXPECT_EQ(count("ScalarRead"), 1);
  EXPECT_EQ(count("Flush"), 1);
  EXPECT_EQ(error_of([&] { x.item(); }), error_of([&] { cpu.item(); }));
}

// What decompositions say is read, not computed with.
TEST_F(NativeCopies, CodesOfErrorsAreRead) {
  const auto recorded = [] { return counter("NodesRecorded").value(); };
  const at::Tensor codes = to_lazy(at::zeros({4}, at::kInt));
  const auto before = recorded();
  at::_linalg_check_errors(codes, "f", /*is_matrix=*/false);
  EXPECT_EQ(recorded(), before);
  codes[2] = 1;
  EXPECT_THROW(at::_linalg_check_errors(codes, "linalg.inv", /*is_matrix=*/false), c10::LinAlgError);
}

} // namespace
} // namespace lazyplug
