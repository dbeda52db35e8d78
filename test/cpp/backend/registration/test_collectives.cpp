#include "backend/registration/collectives.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "backend/ops/op_registry.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

using Tensors = std::vector<at::Tensor>;

// A transfer that ends when the test says so.
class Transfer final : public c10d::Work {
 public:
  explicit Transfer(Tensors tensors) : Work(/*rank=*/-1, c10d::OpType::ALLREDUCE), tensors_(std::move(tensors)) {}

  std::vector<at::Tensor> result() override {
    return tensors_;
  }
  int sourceRank() const override {
    return 5;
  }
  uint64_t getSequencenumber() const override {
    return 42;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }
  void complete() {
    future_->markCompleted(c10::IValue(tensors_));
    finish();
  }
  void fail() {
    finish(std::make_exception_ptr(std::runtime_error("the cable is out")));
  }

 private:
  const Tensors tensors_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
};

// Sends CPU tensors to another process, which has the same numbers.
class Twin final : public c10d::Backend {
 public:
  Twin() : Backend(/*rank=*/0, /*size=*/2) {}

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& /*options*/) override {
    for (at::Tensor& tensor : tensors) {
      tensor.mul_(2);
    }
    return start(tensors);
  }
  c10::intrusive_ptr<c10d::Work>
  allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& /*options*/) override {
    for (at::Tensor& output : outputs[0]) {
      output.copy_(inputs[0]);
    }
    return start(outputs[0]);
  }
  c10::intrusive_ptr<c10d::Work> send(Tensors& tensors, int /*rank*/, int /*tag*/) override {
    sent = tensors[0].clone();
    return start(tensors);
  }
  c10::intrusive_ptr<c10d::Work> recv(Tensors& tensors, int /*rank*/, int /*tag*/) override {
    tensors[0].copy_(sent);
    return start(tensors);
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& /*options*/) override {
    return start({});
  }

  c10::intrusive_ptr<Transfer> transfer; // the latest
  Tensors seen;                          // by it
  at::Tensor sent;

 private:
  c10::intrusive_ptr<c10d::Work> start(Tensors tensors) {
    seen = tensors;
    transfer = c10::make_intrusive<Transfer>(std::move(tensors));
    return transfer;
  }
};

class CollectivesTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    group_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, twin_);
  }
  void TearDown() override {
    EXPECT_EQ(count("FallbackTotal"), 0);
  }

  c10::intrusive_ptr<c10d::Work> all_reduce(Tensors tensors) {
    return group_->allreduce(tensors);
  }

  const c10::intrusive_ptr<Twin> twin_ = c10::make_intrusive<Twin>();
  const c10::intrusive_ptr<c10d::ProcessGroup> group_ = c10::make_intrusive<c10d::ProcessGroup>(0, 2);
  const at::Tensor cpu = iota({2, 3});
  const at::Tensor x = to_lazy(cpu);
};

TEST_F(CollectivesTest, EveryOpOfTheCpuHasAKernel) {
  size_t num_ops = 0;
  for (const c10::OperatorHandle& op : ops_of("c10d::")) {
    if (op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
      ++num_ops;
      EXPECT_TRUE(op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) << op.operator_name();
    }
  }
  EXPECT_GT(num_ops, 15);
}

TEST_F(CollectivesTest, SendTheMemoryOfTheTensor) {
  const at::Tensor y = x + 1;
  all_reduce({y});
  EXPECT_EQ(count("Sync/a collective"), 1);
  ASSERT_EQ(twin_->seen.size(), 1);
  EXPECT_TRUE(twin_->seen[0].is_cpu());
  EXPECT_EQ(twin_->seen[0].data_ptr(), y.mutable_data_ptr());
  expect_equal(y, (cpu + 1) * 2);
  EXPECT_EQ(count("TraceCut"), 1);
}

TEST_F(CollectivesTest, WriteWhereViewsLie) {
  all_reduce({x.select(0, 1)});
  expect_equal(x, at::stack({cpu[0], cpu[1] * 2}));
}

TEST_F(CollectivesTest, PendingReadersKeepWhatTheyRead) {
  const at::Tensor reader = x * 3;
  all_reduce({x});
  expect_equal(reader, cpu * 3);
  expect_equal(x, cpu * 2);
}

TEST_F(CollectivesTest, WhatIsOnlyReadDisturbsNobody) {
  const at::Tensor reader = x * 3;
  Tensors tensors{x};
  group_->send(tensors, 1, 0);
  EXPECT_EQ(state_of(reader), State::kPending);
  EXPECT_EQ(count("TraceCut"), 0);
  Tensors received{at::empty({2, 3}, on_lazy())};
  group_->recv(received, 1, 0);
  expect_equal(received[0], cpu);
  group_->recv(tensors, 1, 0);
  EXPECT_EQ(count("TraceCut"), 1) << "before the memory that it reads is written";
  expect_equal(reader, cpu * 3);
}

TEST_F(CollectivesTest, ListsOfLists) {
  const at::Tensor first = at::empty({2, 3}, on_lazy());
  const at::Tensor second = at::empty({2, 3}, on_lazy());
  std::vector<Tensors> outputs{{first, second}};
  Tensors inputs{x};
  group_->allgather(outputs, inputs);
  expect_equal(first, cpu);
  expect_equal(second, cpu);
}

TEST_F(CollectivesTest, ReturnTheTensorsThatTheyWereGiven) {
  c10::Stack stack{
      Tensors{x},
      group_,
      c10::make_intrusive<c10d::ReduceOp>(),
      c10::IValue(),
      /*asyncOp=*/true,
      /*timeout=*/-1};
  c10::Dispatcher::singleton().findSchemaOrThrow("c10d::allreduce_", "").callBoxed(&stack);
  ASSERT_EQ(stack.size(), 2);
  EXPECT_TRUE(stack[0].toTensorVector()[0].is_same(x));
}

TEST_F(CollectivesTest, TheTransferIsAsynchronous) {
  const auto work = all_reduce({x});
  const auto future = work->getFuture();
  EXPECT_FALSE(work->isCompleted());
  EXPECT_FALSE(future->completed());
  twin_->transfer->complete();
  EXPECT_TRUE(work->isCompleted());
  EXPECT_TRUE(work->isSuccess());
  EXPECT_TRUE(work->wait());
  EXPECT_EQ(work->retrieveOpType(), c10d::OpType::ALLREDUCE);
  EXPECT_EQ(work->sourceRank(), 5);
  EXPECT_EQ(work->getSequencenumber(), 42);
}

TEST_F(CollectivesTest, ResultsAreTheTensorsThatWereSent) {
  const at::Tensor other = iota({2});
  const auto work = all_reduce({x, other});
  twin_->transfer->complete();
  for (const Tensors& results : {work->result(), work->getFuture()->value().toTensorVector()}) {
    ASSERT_EQ(results.size(), 2);
    EXPECT_TRUE(results[0].is_same(x));
    EXPECT_TRUE(results[1].is_same(other));
  }
}

TEST_F(CollectivesTest, ErrorsOfTheTransferAreTheWorks) {
  const auto work = all_reduce({x});
  twin_->transfer->fail();
  EXPECT_FALSE(work->isSuccess());
  EXPECT_NE(work->exception(), nullptr);
  EXPECT_EQ(error_of([&] { work->wait(); }), "the cable is out");
}

TEST_F(CollectivesTest, ErrorsOfWhatIsSentAreRaisedAtOnce) {
  const at::Tensor bad = x.index({to_lazy(at::tensor({7}))});
  EXPECT_TRUE(contains(error_of([&] { all_reduce({bad}); }), "index 7 is out of bounds"));
  EXPECT_EQ(twin_->transfer, nullptr);
}

} // namespace
} // namespace lazyplug
