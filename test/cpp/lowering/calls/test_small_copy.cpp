#include "lowering/calls/small_copy.h"

#include <limits>

#include "test/cpp/lowering/small_calls_test.h"

namespace lazyplug {
namespace {

using Indices = std::vector<at::indexing::TensorIndex>;
using at::indexing::Slice;

const Indices kParts[] = {
    {2, 3},                // an element
    {1},                   // a row
    {Slice(), 4},          // a column
    {Slice(1, 4, 2), 0},   // some of one
    {Slice(), Slice(2, 3)} // a column that is a matrix
};

class SmallCopyTest : public SmallCallsTest {
 protected:
  // The call on one copy of a tensor's part, and PyTorch's on another. Both are the whole tensor's bits afterwards.
  static void expect_same_part(const char* op, const at::Tensor& whole, const Indices& part, Arguments rest) {
    const at::Tensor ours = whole.clone();
    const at::Tensor theirs = whole.clone();
    Arguments arguments = {ours.index(part)};
    c10::Stack expected = {theirs.index(part)};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    expected.insert(expected.end(), rest.begin(), rest.end());
    ASSERT_TRUE(run(op, arguments).defined()) << op;
    op_of(op).handle().callBoxed(expected);
    EXPECT_TRUE(at::equal(ours.view(at::kByte), theirs.view(at::kByte))) << op;
  }
};

TEST_F(SmallCopyTest, CopiesLinesOfAllDtypes) {
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kHalf, at::kByte, at::kBool, at::kComplexDouble}) {
    const at::Tensor whole = (at::randn({5, 7}) * 100).to(dtype);
    const at::Tensor other = (at::randn({5, 7}) * 100).to(dtype);
    for (const auto& part : kParts) {
      expect_same_part("aten::copy_", whole, part, {other.index(part), false});
      expect_same_part("aten::copy_", whole, part, {other.index(part).contiguous(), false});
      expect_same_part("aten::copy_", whole, part, {other.index({0, 0}), false}); // broadcast
    }
  }
}

TEST_F(SmallCopyTest, CopiesWhatIsStridedAlike) {
  const at::Tensor transposed = at::randn({3, 4}).t();
  expect_same_part("aten::copy_", at::randn({4, 3}), {Slice()}, {at::randn({4, 3}), false});
  const at::Tensor ours = at::zeros({3, 4}).t();
  ASSERT_TRUE(run("aten::copy_", {ours, transposed, false}).defined());
  EXPECT_TRUE(at::equal(ours, transposed));
}

TEST_F(SmallCopyTest, LeavesOthersToPointwiseCalls) {
  const at::Tensor whole = at::randn({5, 7});
  expect_same_part("aten::copy_", whole, {Slice(0, 3), Slice(1, 3)}, {at::randn({3, 2}), false});
  expect_same_part("aten::copy_", whole, {Slice(0, 3), Slice(1, 3)}, {at::randn({2}), false});
  expect_same_part("aten::copy_", whole, {Slice(), 2}, {at::arange(5), false}); // of another dtype
  expect_same_part("aten::copy_", whole, {1}, {at::randn({1, 1})[0].expand({7}), false});
}

TEST_F(SmallCopyTest, LeavesWhatOverlapsOrFails) {
  const at::Tensor whole = at::randn({8});
  expect_none("aten::copy_", {whole.slice(0, 1), whole.slice(0, 0, 7), false});
  expect_none("aten::copy_", {at::zeros({1}).expand({4}), at::randn({4}), false});
  expect_none("aten::copy_", {at::zeros({4}), at::randn({1, 4}), false});
  expect_none("aten::copy_", {at::zeros({4}), at::randn({3}), false});
  expect_none("aten::copy_", {at::zeros({0}), at::randn({1}), false});
}

TEST_F(SmallCopyTest, Fills) {
  for (const auto& part : kParts) {
    for (const double value : {0.1, -0.0, 16777217.0, std::numeric_limits<double>::infinity()}) {
      expect_same_part("aten::fill_.Scalar", at::randn({5, 7}), part, {value});
      expect_same_part("aten::fill_.Scalar", at::randn({5, 7}, at::kDouble), part, {value});
    }
    for (const int64_t value : {int64_t{-3}, (int64_t{1} << 53) + 1}) {
      expect_same_part("aten::fill_.Scalar", at::zeros({5, 7}, at::kLong), part, {value});
      expect_same_part("aten::fill_.Scalar", at::randn({5, 7}), part, {value});
    }
  }
}

TEST_F(SmallCopyTest, LeavesNumbersThatMayRaise) {
  expect_none("aten::fill_.Scalar", {at::zeros({1}).expand({4}), 1.5});
  expect_none("aten::fill_.Scalar", {at::zeros({4}, at::kInt), 300});
  expect_none("aten::fill_.Scalar", {at::zeros({4}, at::kLong), 1.5});
}

} // namespace
} // namespace lazyplug
