#include "test/cpp/backend/stream_test.h"

namespace lazyplug {
namespace {

using StreamContextTest = StreamTest;

// ---- recording ----

TEST_F(StreamContextTest, RecordingAppendsANodeAndItsLeaves) {
  const at::Tensor y = add(x, x);
  ASSERT_EQ(stream_.trace().size(), 2) << "one leaf, though it is read twice";
  EXPECT_EQ(stream_.trace().nodes().back().location, kLocation);
  EXPECT_EQ(state_of(y), State::kPending);
  EXPECT_EQ(state_of(x), State::kAvailable);
  EXPECT_EQ(stream_.recorded(), 1);
  EXPECT_EQ(stream_.completed(), 0);
}

TEST_F(StreamContextTest, AViewIsAReadOfItsStoragesValue) {
  const at::Tensor turned = to_lazy(iota({3, 2})).t();
  add(add(x, turned), turned);
  const auto operands = [&](NodeId node) { return stream_.trace().operands(stream_.trace().node(node)); };
  ASSERT_EQ(stream_.trace().size(), 4) << "two leaves and two calls";
  // The leaf lies as the tensor that read it first.
  EXPECT_EQ(operands(3)[1].value, operands(2)[1].value);
  add(turned.t().view({2, 3}), x);
  EXPECT_EQ(operands(4)[0].value, operands(2)[1].value);
  EXPECT_NE(operands(4)[0].view, nullptr);
}

TEST_F(StreamContextTest, WhereAPartBeginsIsNoPartOfTheProgram) {
  const at::Tensor values = iota({8, 3});
  const at::Tensor table = to_lazy(values);
  const auto hash_of = [&](int64_t row, int64_t other) {
    const at::Tensor y = add(table.slice(0, row, row + 2), table.slice(0, other, other + 2));
    const Hash128 hash = stream_.trace().hash();
    run();
    expect_equal(y, values.slice(0, row, row + 2) + values.slice(0, other, other + 2));
    return hash;
  };
  EXPECT_EQ(hash_of(0, 1), hash_of(3, 2));
  EXPECT_EQ(hash_of(0, 1), hash_of(3, 3)) << "two parts, which happen to be one";
}

TEST_F(StreamContextTest, APartThatIsReadTwiceBeginsAtOnePlace) {
  const at::Tensor table = to_lazy(iota({8, 3}));
  const at::Tensor part = table.slice(0, 1, 3);
  const auto place_of = [&](size_t operand) {
    return stream_.trace().operands(stream_.trace().nodes().back())[operand].view->offset_scalar;
  };
  at::Tensor y = add(part, part);
  const uint32_t place = place_of(0);
  EXPECT_EQ(place_of(1), place);
  y = add(part, y);
  EXPECT_EQ(place_of(0), place);
  y = add(table.slice(0, 1, 3), y);
  EXPECT_NE(place_of(0), place) << "another tensor";
  run();
  expect_equal(y, iota({8, 3}).slice(0, 1, 3) * 4);
}

TEST_F(StreamContextTest, AWriteMakesTheStoragePendingAndHandsItsMemoryBack) {
  at::Tensor y = to_lazy(cpu);
  add_(y, x);
  EXPECT_EQ(state_of(y), State::kPending);
  EXPECT_EQ(num_freed_, 1) << "to be freed without the lock";
  add_(y, x);
  run();
  expect_equal(y, cpu * 3);
}

TEST_F(StreamContextTest, NumbersAreReadOnlyLeavesAndNewToTheCacheOnce) {
  context_.numbers().clear();
  const at::Tensor number = at::full({}, 4.5F);
  const at::Tensor y = add(x, number);
  EXPECT_EQ(new_numbers_, 1);
  EXPECT_TRUE(stream_.trace().leaf_info(1).read_only);
  EXPECT_EQ(stream_.trace().leaf_info(1).tensor_id, DeviceDataInfo::kNoTensor);
  expect_equal(x + number, cpu + 4.5); // caches it
  const at::Tensor z = add(x, number);
  EXPECT_EQ(new_numbers_, 0);
  run();
  expect_equal(y, cpu + 4.5);
  expect_equal(z, cpu + 4.5);
}

TEST_F(StreamContextTest, TheTraceIsFullByNodesOrByBytes) {
  {
    const ScopedFlag<int64_t> nodes(config().max_pending_nodes, 4);
    std::vector<at::Tensor> kept{add(x, x)};
    EXPECT_FALSE(stream_.decide_cut());
    kept.push_back(add(x, x));
    EXPECT_FALSE(stream_.decide_cut());
    kept.push_back(add(x, x));
    EXPECT_TRUE(stream_.decide_cut()) << "a leaf and three calls";
    run();
    EXPECT_FALSE(stream_.decide_cut());
  }
  const ScopedFlag<int64_t> bytes(config().max_pending_bytes, 48);
  const at::Tensor one = add(x, x);
  EXPECT_FALSE(stream_.decide_cut());
  const at::Tensor two = add(x, x);
  EXPECT_TRUE(stream_.decide_cut());
}

// ---- submitting ----

TEST_F(StreamContextTest, SubmitTakesTheWholeTrace) {
  const at::Tensor y = add(x, x);
  at::Tensor dead = add(x, x);
  dead.reset();
  const uint64_t epoch = stream_.epoch();
  const Worker::Ticket ticket = stream_.submit(/*wake=*/false);
  EXPECT_TRUE(stream_.trace().empty());
  EXPECT_NE(stream_.epoch(), epoch);
  EXPECT_EQ(stream_.num_submitted(), 1);
  EXPECT_EQ(state_of(y), State::kSubmitted);
  EXPECT_EQ(stream_.completed(), 0) << "nobody has been woken";
  stream_.worker().wait(ticket);
  EXPECT_EQ(stream_.completed(), 2);
  EXPECT_EQ(count("NodesExecuted"), 1);
  expect_equal(y, cpu * 2);
}

TEST_F(StreamContextTest, SubmitWithoutWorkReturnsTheLastTicket) {
  EXPECT_EQ(stream_.submit(/*wake=*/true), 0);
  const at::Tensor y = add(x, x);
  const Worker::Ticket ticket = run();
  EXPECT_EQ(stream_.submit(/*wake=*/true), ticket);
  EXPECT_EQ(stream_.num_submitted(), 0);
  EXPECT_EQ(count("Flush"), 1);
}

TEST_F(StreamContextTest, WhatDiedCompletesItsPlaceWithoutRunning) {
  add(x, x);
  add(x, x);
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(stream_.num_submitted(), 0);
  EXPECT_EQ(stream_.completed(), stream_.recorded());
  EXPECT_EQ(count("Flush"), 0);
}

TEST_F(StreamContextTest, ADroppedStorageIsNoRoot) {
  const at::Tensor kept = add(x, x);
  const at::Tensor other = add(x, x);
  context_.adopt(storage_of(other), at::full({2, 3}, 9.0F).storage()); // drops it
  run();
  EXPECT_EQ(stream_.num_submitted(), 1);
  expect_equal(other, at::full({2, 3}, 9.0F));
  expect_equal(kept, cpu * 2);
}

TEST_F(StreamContextTest, AWaitForAnotherStreamIsAJobOfItsOwn) {
  bool done = false;
  const Worker::Ticket awaited = other_.worker().submit([&] { done = true; }, Worker::By::kAnyone);
  stream_.submit_wait(other_.worker(), awaited);
  stream_.worker().wait(stream_.submit(/*wake=*/false));
  EXPECT_TRUE(done);
}

// ---- leaves that earlier jobs compute ----

TEST_F(StreamContextTest, LeavesAreSettledWhenTheirJobHasRun) {
  const at::Tensor y = add(x, x);
  const Worker::Ticket ticket = stream_.submit(/*wake=*/false);
  const at::Tensor z = add(y, x);
  ASSERT_EQ(stream_.pending_leaves().size(), 1);
  EXPECT_FALSE(stream_.trace().leaves()[0].defined());
  EXPECT_TRUE(contains(error_of([&] { settle_leaves(); }), "still being computed"));
  stream_.worker().wait(ticket);
  EXPECT_EQ(settle_leaves(), nullptr);
  EXPECT_TRUE(stream_.pending_leaves().empty());
  EXPECT_TRUE(at::equal(stream_.trace().leaves()[0], cpu * 2));
  run();
  expect_equal(z, cpu * 3);
  expect_equal(y, cpu * 2);
}

TEST_F(StreamContextTest, AFailedLeafIsToldWheneverItIsSettledAndSpoilsItsReaders) {
  const at::Tensor failed = fail(x);
  const Worker::Ticket ticket = stream_.submit(/*wake=*/false);
  const at::Tensor reader = add(failed, x);
  const at::Tensor other = add(x, x);
  stream_.worker().wait(ticket);
  const FailurePtr failure = settle_leaves();
  ASSERT_NE(failure, nullptr);
  EXPECT_THROW(std::rethrow_exception(failure->error), c10::IndexError);
  EXPECT_EQ(settle_leaves(), failure);
  EXPECT_EQ(stream_.pending_leaves().size(), 1);
  run();
  expect_equal(other, cpu * 2);
  EXPECT_THROW(reader.cpu(), c10::IndexError);
}

// ---- failures ----

TEST_F(StreamContextTest, TheFirstUnseenFailureIsTakenAndTheOthersForgotten) {
  const std::vector<at::Tensor> failed{fail(x), fail(x)};
  run();
  const at::Tensor later = fail(x);
  run();
  const FailurePtr first = stream_.take_failure();
  ASSERT_TRUE(first);
  EXPECT_EQ(stream_.take_failure(), nullptr);
  EXPECT_THROW(failed[1].cpu(), c10::IndexError);
  EXPECT_THROW(later.cpu(), c10::IndexError);
  EXPECT_FALSE(first->seen);
  EXPECT_THROW(failed[0].cpu(), c10::IndexError);
  EXPECT_TRUE(first->seen) << "it was this one's";
}

TEST_F(StreamContextTest, FailuresThatSomebodyHasSeenAreNotTaken) {
  const at::Tensor seen = fail(x);
  const at::Tensor unseen = fail(x);
  run();
  EXPECT_THROW(seen.cpu(), c10::IndexError);
  const FailurePtr failure = stream_.take_failure();
  ASSERT_TRUE(failure);
  EXPECT_FALSE(failure->seen);
  failure->seen = true;
  EXPECT_EQ(stream_.take_failure(), nullptr);
}

TEST_F(StreamContextTest, ASpoiledReaderIsNoFailureOfItsOwn) {
  const at::Tensor failed = fail(x);
  const Worker::Ticket ticket = stream_.submit(/*wake=*/false);
  const at::Tensor reader = add(failed, x);
  run();
  stream_.worker().wait(ticket);
  EXPECT_TRUE(stream_.take_failure());
  EXPECT_EQ(stream_.take_failure(), nullptr);
  EXPECT_THROW(reader.cpu(), c10::IndexError);
}

} // namespace
} // namespace lazyplug
