#include "backend/execution/job.h"

#include "test/cpp/backend/backend_test.h"
#include "test/cpp/lowering/programs.h"

namespace lazyplug {
namespace {

class JobTest : public BackendTest {
 protected:
  Value add_root(Value value) {
    job_.roots.push_back(value);
    job_.layouts.push_back(&job_.trace.layout(value));
    job_.results.push_back(some_data());
    results_.push_back(job_.results.back());
    return value;
  }
  Value add_failing(Value operand) {
    static const OpInfo& op = make_op("lazyplug_backend_test::fail");
    return add_simple(job_.trace, op, {{operand}}, floats({2}));
  }
  // A leaf that an earlier job has computed, or failed to.
  Value add_pending_leaf(const at::Tensor& contents, FailurePtr failure) {
    const Value leaf = job_.trace.add_device_data(at::Tensor(), floats({2}));
    const FutureContentsPtr data = some_data();
    data->set(contents.defined() ? contents.storage() : c10::Storage(), std::move(failure));
    job_.pending_leaves.push_back({0, &job_.trace.layout(leaf), data});
    return leaf;
  }
  FutureContentsPtr some_data() {
    return c10::make_intrusive<FutureContents>(worker_, 0);
  }
  std::vector<float> numbers(size_t root) const {
    const auto* data = static_cast<const float*>(results_[root]->memory.data());
    return {data, data + 2};
  }

  Worker worker_{"test"};
  Job job_;
  std::vector<FutureContentsPtr> results_;
};

TEST_F(JobTest, FillsEachResult) {
  const Value x = add_leaf(job_.trace, at::ones({2}));
  const Value doubled = add_root(add_add(job_.trace, {x}, {x}, floats({2})));
  add_root(add_mul(job_.trace, {doubled}, {doubled}, floats({2})));
  EXPECT_TRUE(run_job(std::move(job_)).failures.empty());
  for (const auto& result : results_) {
    ASSERT_TRUE(result->is_ready());
    EXPECT_FALSE(result->failure);
  }
  EXPECT_EQ(numbers(0), std::vector<float>({2, 2}));
  EXPECT_EQ(numbers(1), std::vector<float>({4, 4}));
}

TEST_F(JobTest, FailuresSpoilWhatDependsOnThemAndNothingElse) {
  const Value x = add_leaf(job_.trace, at::ones({2}));
  const Value failed = add_root(add_failing(x));
  add_root(add_relu(job_.trace, {failed}, floats({2})));
  add_root(add_add(job_.trace, {x}, {x}, floats({2})));
  const auto failures = run_job(std::move(job_)).failures;
  ASSERT_EQ(failures.size(), 1) << "one, however many results it spoils";
  EXPECT_EQ(results_[0]->failure, failures[0]);
  EXPECT_EQ(results_[1]->failure, failures[0]);
  EXPECT_FALSE(results_[1]->memory);
  EXPECT_THROW(std::rethrow_exception(failures[0]->error), c10::IndexError);
  EXPECT_EQ(numbers(2), std::vector<float>({2, 2}));
}

TEST_F(JobTest, LeavesOfEarlierJobsAreRead) {
  const Value leaf = add_pending_leaf(at::full({2}, 3.0f), nullptr);
  add_root(add_add(job_.trace, {leaf}, {leaf}, floats({2})));
  EXPECT_TRUE(run_job(std::move(job_)).failures.empty());
  EXPECT_EQ(numbers(0), std::vector<float>({6, 6}));
}

TEST_F(JobTest, FailuresOfEarlierJobsArePassedOnButNotReturned) {
  const auto failure = std::make_shared<Failure>(std::make_exception_ptr(std::runtime_error("earlier")));
  const Value leaf = add_pending_leaf(at::Tensor(), failure);
  add_root(add_add(job_.trace, {leaf}, {leaf}, floats({2})));
  EXPECT_TRUE(run_job(std::move(job_)).failures.empty());
  EXPECT_EQ(results_[0]->failure, failure);
  EXPECT_FALSE(results_[0]->memory);
}

TEST_F(JobTest, WhatIsNeededIsOneGraphHoweverMuchIsNot) {
  computation_cache().clear();
  for (int unneeded = 0; unneeded < 5; ++unneeded) {
    job_ = Job();
    results_.clear();
    const Value dropped = job_.trace.add_device_data(at::Tensor(), floats({3}));
    job_.pending_leaves.push_back({0, &job_.trace.layout(dropped), some_data()});
    job_.pending_leaves.back().data->set(at::ones({3}).storage(), nullptr);
    const Value leaf = job_.trace.add_device_data(at::Tensor(), floats({2}));
    job_.pending_leaves.push_back({1, &job_.trace.layout(leaf), some_data()});
    job_.pending_leaves.back().data->set(at::full({2}, 3.0f).storage(), nullptr);
    for (int i = 0; i < unneeded; ++i) {
      add_mul(job_.trace, {dropped}, {dropped}, floats({3}));
    }
    add_root(add_add(job_.trace, {leaf}, {leaf}, floats({2})));
    EXPECT_TRUE(run_job(std::move(job_)).failures.empty());
    EXPECT_EQ(numbers(0), std::vector<float>({6, 6})) << unneeded;
  }
  EXPECT_EQ(count("Compile"), 2) << "the first as it came, then what all have in common";
  EXPECT_EQ(count("UnneededLeftOut"), 4);
}

TEST_F(JobTest, ResultsNeverShareMemory) {
  const at::Tensor cpu = at::ones({2});
  static const OpInfo& same = make_op("lazyplug_backend_test::same"); // returns its argument
  const Value x = add_root(add_leaf(job_.trace, cpu));
  add_root(add_simple(job_.trace, same, {{x}}, floats({2})));
  EXPECT_TRUE(run_job(std::move(job_)).failures.empty());
  EXPECT_NE(results_[0]->memory.data(), results_[1]->memory.data());
  EXPECT_NE(results_[1]->memory.data(), cpu.data_ptr());
  EXPECT_EQ(numbers(1), std::vector<float>({1, 1}));
}

TEST_F(JobTest, WhatHasRunIsProven) {
  const Value x = add_leaf(job_.trace, at::ones({2}));
  const Value dropped = add_relu(job_.trace, {x}, floats({2}));
  const Value kept = add_root(add_mul(job_.trace, {x}, {x}, floats({2})));
  const auto proven = [this](Value value) -> std::atomic<bool>& {
    return job_.trace.node(value.node).signature->proven.value;
  };
  const SignaturePtr of_dropped = job_.trace.node(dropped.node).signature;
  const SignaturePtr of_kept = job_.trace.node(kept.node).signature;
  EXPECT_TRUE(may_teach(job_.trace, job_.roots));
  proven(kept) = true;
  EXPECT_FALSE(may_teach(job_.trace, job_.roots)) << "nobody needs the other one";
  proven(kept) = false;
  job_.may_teach = true;
  run_job(std::move(job_));
  EXPECT_TRUE(of_kept->proven.value);
  EXPECT_FALSE(of_dropped->proven.value);
}

TEST_F(JobTest, NothingIsProvenByWhatFails) {
  const Value x = add_leaf(job_.trace, at::ones({2}));
  const Value failed = add_failing(x);
  const Value spoiled = add_root(add_relu(job_.trace, {failed}, floats({2})));
  const SignaturePtr signature = job_.trace.node(spoiled.node).signature;
  job_.may_teach = true;
  EXPECT_EQ(run_job(std::move(job_)).failures.size(), 1);
  EXPECT_FALSE(signature->proven.value);
}

TEST_F(JobTest, TellsWhatKernelsTeach) {
  const at::Tensor transposed = at::ones({3, 2}).t();
  const Value x = add_leaf(job_.trace, transposed);
  const Value relu = add_root(add_relu(job_.trace, {x}, floats({2, 3}))); // keeps strides
  const SignaturePtr signature = job_.trace.node(relu.node).signature;
  job_.may_teach = true;
  const JobReport report = run_job(std::move(job_));
  ASSERT_EQ(report.lessons.size(), 1);
  EXPECT_EQ(report.lessons[0].signature, signature);
  EXPECT_EQ(report.lessons[0].output, 0);
  EXPECT_EQ(c10::IntArrayRef(report.lessons[0].strides), transposed.strides());
  EXPECT_TRUE(signature->proven.value);
}

} // namespace
} // namespace lazyplug
