#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <optional>
#include <vector>

#include "backend/execution/cut_policy.h"
#include "backend/execution/job.h"
#include "backend/execution/lazy_storage.h"
#include "backend/execution/number_cache.h"
#include "backend/execution/overlap.h"
#include "backend/execution/prediction.h"
#include "backend/ops/tensor_arg.h"
#include "common/schedule.h"

namespace lazyplug {

// The fresh outputs of a call.
using Outputs = c10::SmallVector<at::Tensor, 2>;

// One stream of a device: the trace that is being recorded, the storages that
// wait for it, and the worker that runs what has been cut from it, in order.
//
// Locking: everything is guarded by the mutex of the DeviceContext, which calls
// all methods with it held, except for what is marked as free: the worker, and
// the places.
class StreamContext {
 public:
  StreamContext(DeviceContext& context, c10::StreamId id);

  // What is left to do when the lock is no longer held: to free this, and to add
  // these numbers to the device's cache.
  struct Aftermath {
    c10::SmallVector<Discarded, 2> discarded;
    c10::SmallVector<std::pair<Number, at::Tensor>, 1> numbers;
  };

  // Appends a call whose arguments wait for no other trace, and its fresh
  // outputs, as tensors, to `outputs`.
  void record(
      const SignaturePtr& signature,
      c10::ArrayRef<TensorArg> args,
      c10::ArrayRef<c10::IValue> scalars,
      const char* location,
      Aftermath& aftermath,
      Outputs& outputs);

  // The signature of the next call, if the program repeats itself, or null.
  const SignaturePtr& predicted() const {
    return prediction_.next();
  }

  // Whether the trace is to be cut here, which is noted as a cut of its step.
  bool decide_cut();
  // The program has the result that it cut the trace for.
  void note_result();

  // The number of the step that is being recorded: see CutPolicy.
  uint64_t step() const {
    return cut_policy_.step();
  }

  // Cuts the trace, and queues it: if `wake`, for the worker, unless only who waits
  // may compute it. Without anything to run, returns the last ticket. `cut` says
  // why.
  Worker::Ticket submit(bool wake, const Cut& cut = {});
  // The program waits for a storage: a pending one, for which the trace is about to be cut, or another one of the step
  // that has just ended. For plans, which may overlap what nobody waits for.
  void note_awaited(const LazyStorageImpl& storage);
  // Queues a wait for another stream's work.
  void submit_wait(Worker& other, Worker::Ticket ticket);

  // Leaves of the trace that earlier jobs compute; settle_leaves() takes their
  // data over when all of it is ready, or returns the failure of one of them.
  c10::ArrayRef<PendingLeaf> pending_leaves() const {
    return pending_leaves_;
  }
  FailurePtr settle_leaves(Aftermath& aftermath);

  // See DeviceContext::hold_check(). Takes the first of those that have been submitted, if there is one.
  void hold_check(const c10::Storage& storage);
  FutureContentsPtr take_check() {
    if (checks_.empty()) {
      return nullptr;
    }
    FutureContentsPtr first = std::move(checks_.front());
    checks_.erase(checks_.begin());
    return first;
  }

  // A storage among the pending ones dies, or gets other contents.
  void drop(LazyStorageImpl& storage);

  const Trace& trace() const {
    return trace_;
  }
  uint64_t epoch() const {
    return epoch_;
  }
  // Of the last trace to be cut: whether the worker may compute it, and how many
  // storages wait for it.
  bool submitted_overlaps() const {
    return submitted_overlaps_;
  }
  size_t num_submitted() const {
    return num_submitted_;
  }
  // With the flag `debug`: when the first op of the trace was recorded, on the
  // journal's clock; or 0.
  int64_t start_ns() const {
    return start_ns_;
  }

  // ---- free of the lock ----

  // What kernels teach of strides takes effect when the program has waited for
  // them, and not when they happen to run: or timing would decide which kernels
  // are chosen next, and so about last bits. Until this job has run, there may be
  // something to learn; 0: there is not.
  Worker::Ticket teaching_job() const {
    return teaching_job_;
  }
  // Learns what the jobs up to this one have taught.
  void learn(Worker::Ticket job);

  // The first failure that nobody has seen. Neither it nor what failed before or
  // after it is then kept any longer.
  FailurePtr take_failure();

  Worker& worker() {
    return worker_;
  }
  // How many ops have been recorded, and how many of them have run, so far. Waits count as ops.
  uint64_t recorded() const {
    return recorded_;
  }
  uint64_t completed() const {
    return completed_;
  }

 private:
  using Written = c10::SmallVector<LazyStorageImpl*, 4>;

  // The distinct storages that a call writes, in the order of its operands.
  static Written written_storages(c10::ArrayRef<TensorArg> args);
  void keep_identities(c10::ArrayRef<TensorArg> args, c10::SmallVectorImpl<Operand>& operands);
  Operand read(const TensorArg& arg, const Signature& signature, Aftermath& aftermath);
  template <typename Tensor> // or its geometry
  Operand read(LazyStorageImpl& storage, const Tensor& tensor, const c10::TensorImpl& identity, Aftermath& aftermath);
  uint32_t scalar_of_offset(LazyStorageImpl& storage, const c10::TensorImpl& tensor);
  template <typename Tensor>
  void enter_trace(LazyStorageImpl& storage, const Tensor& tensor, Aftermath& aftermath);
  Operand read_number(const c10::TensorImpl& tensor, const Signature& signature, Aftermath& aftermath);
  void make_outputs(NodeId node, const Signature& signature, Outputs& outputs);
  Discarded make_pending(LazyStorageImpl& storage, Value value, const Geometry* layout);
  const Schedule& schedule();
  Job take_job(const Cut& cut);
  void submit_checks(Job& job);
  void finish(JobReport report, Worker::Ticket job, StepPlans::StepId timed_step, uint64_t place);
  void complete(uint64_t place);
  void keep_failures(const std::vector<FailurePtr>& failures);
  void choose_overlap();
  size_t num_timed_calls_until(NodeId node) const;
  Worker::Ticket next_ticket() const {
    return last_ticket_ + 1;
  }

  DeviceContext& context_;
  const c10::DeviceIndex device_;
  const c10::StreamId id_;
  Trace trace_;
  std::vector<PendingLeaf> pending_leaves_;
  // Where moving views of the trace begin, and which scalar says so: a list for each storage.
  struct OffsetScalar {
    static constexpr uint32_t kNone = static_cast<uint32_t>(-1);
    const c10::TensorImpl* tensor; // its address, it may be gone
    uint32_t num_views;            // of the storage, when it was read
    int64_t offset;
    uint32_t scalar;
    uint32_t previous; // of the same storage
  };
  std::vector<OffsetScalar> offsets_;
  uint64_t epoch_;
  // By creation. Weak references, so that a storage can be revived, or found
  // dead, while its last owner is letting go of it on another thread.
  std::vector<c10::weak_intrusive_ptr<LazyStorageImpl>> pending_;
  std::vector<c10::Storage> held_checks_; // pending ones
  std::vector<FutureContentsPtr> checks_; // submitted ones
  CutPolicy cut_policy_;
  OverlappingWork overlap_;
  float overlapping_work_ = -1; // what may run on the worker; see overlapping_work()
  float work_ = 0;              // of the trace's heaviest call
  Schedule schedule_;
  uint64_t schedule_version_ = 0; // of the flag
  Prediction prediction_;
  bool submitted_overlaps_ = true;
  size_t num_submitted_ = 0;
  std::optional<NodeId> awaited_;   // in the trace, by the program that is about to cut it
  std::vector<NodeId> timed_calls_; // of the trace that was cut last, if its step is timed
  int64_t start_ns_ = 0;
  uint64_t submitted_place_ = 0;
  Worker::Ticket last_ticket_ = 0;
  std::atomic<uint64_t> recorded_{0};
  std::atomic<uint64_t> completed_{0};
  bool may_teach_ = false; // some signature of the trace is not proven
  std::atomic<Worker::Ticket> teaching_job_{0};
  struct StepReport {
    StepPlans::StepId step;
    std::vector<float> kernels; // seconds of each call
    double overhead;            // of the job
  };
  std::mutex reports_mutex_;         // held for nothing but the next members
  std::vector<FailurePtr> failures_; // in the order of execution; some may have been seen
  std::deque<std::pair<Worker::Ticket, std::vector<Lesson>>> lessons_;
  std::vector<StepReport> step_reports_;
  std::atomic<bool> has_lessons_{false}; // whether to look at them
  std::atomic<bool> has_step_reports_{false};
  Worker worker_; // the last member: stops before the others go
};

} // namespace lazyplug
