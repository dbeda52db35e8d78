#include "backend/execution/stream_context.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "backend/caches/short_steps.h"
#include "backend/caches/signature_cache.h"
#include "backend/diagnostics/journal.h"
#include "backend/execution/device_context.h"
#include "common/config.h"
#include "common/metrics.h"
#include "device/cpu_allocator.h"
#include "device/event.h"
#include "device/runtime.h"
#include "lowering/calls/runtime_ops.h"

namespace lazyplug {
namespace {

c10::weak_intrusive_ptr<LazyStorageImpl> weak_reference(LazyStorageImpl& storage) {
  c10::raw::weak_intrusive_ptr::incref(&storage);
  return c10::weak_intrusive_ptr<LazyStorageImpl>::reclaim(&storage);
}

// Unique in the process: a storage may meet the traces of several streams.
uint64_t next_epoch() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::string worker_name(c10::DeviceIndex device, c10::StreamId id) {
  return "lazy:" + std::to_string(device) + "/" + std::to_string(id);
}

// More than anybody wants to hear of.
constexpr size_t kMaxFailures = 64;

CutPolicy::Limits cut_limits() {
  const auto limit = [](const Flag<int64_t>& flag) { return static_cast<size_t>(flag.get()); };
  const Config& flags = config();
  return {
      .chunk_ops = limit(flags.chunk_nodes),
      .min_nodes = limit(flags.min_cut_nodes),
      .max_nodes = limit(flags.max_pending_nodes),
      .max_bytes = limit(flags.max_pending_bytes)};
}

std::vector<const char*> origins_of(const Trace& trace) {
  std::vector<const char*> origins;
  for (size_t leaf = 0; leaf < trace.leaves().size(); ++leaf) {
    origins.push_back(find_origin(static_cast<uint64_t>(trace.leaf_info(leaf).tensor_id)));
  }
  return origins;
}

std::vector<NodeId> calls_of(const Trace& trace) {
  std::vector<NodeId> calls;
  for (NodeId id = 0; id < trace.size(); ++id) {
    if (trace.node(id).kind == NodeKind::kCall) {
      calls.push_back(id);
    }
  }
  return calls;
}

bool is_unseen(const FailurePtr& failure) {
  return !failure->seen;
}

} // namespace

StreamContext::StreamContext(DeviceContext& context, c10::StreamId id)
    : context_(context),
      device_(context.device().index()),
      id_(id),
      epoch_(next_epoch()),
      worker_(worker_name(device_, id)) {
  choose_overlap();
}

// ---- recording ----

void StreamContext::record(
    const SignaturePtr& signature,
    c10::ArrayRef<TensorArg> args,
    c10::ArrayRef<c10::IValue> scalars,
    const char* location,
    Aftermath& aftermath,
    Outputs& outputs) {
  static Counter& recorded = counter("NodesRecorded");
  if (trace_.empty()) {
    start_ns_ = journal_start();
  }
  c10::SmallVector<Operand, 8> operands;
  int64_t num_elements = 0;
  for (const TensorArg& arg : args) {
    operands.push_back(read(arg, *signature, aftermath));
    num_elements = std::max(num_elements, arg.tensor ? arg.tensor->numel() : 0);
  }
  Written written;
  if (!signature->written.empty()) {
    if (signature->shares_written) {
      keep_identities(args, operands);
    }
    written = written_storages(args);
  }
  const NodeId node = trace_.add_call(signature, operands, scalars, static_cast<uint32_t>(written.size()), location);
  may_teach_ |= !signature->proven.value.load(std::memory_order_relaxed);
  recorded.add();
  signature->op->calls().add();
  note_call(*signature->op, num_elements);
  recorded_.store(recorded_ + 1, std::memory_order_release); // nobody else writes it
  uint32_t output = static_cast<uint32_t>(signature->outputs.size());
  for (LazyStorageImpl* storage : written) {
    aftermath.discarded.push_back(make_pending(*storage, {node, output++}, storage->layout_));
  }
  work_ = std::max(work_, signature->work);
  cut_policy_.note(signature->hash.lo, signature->work <= overlapping_work_);
  prediction_.note(signature);
  make_outputs(node, *signature, outputs);
}

// Kernels that write ask whether two arguments are one tensor. One tensor that
// is read twice becomes one operand, and different tensors different ones.
void StreamContext::keep_identities(c10::ArrayRef<TensorArg> args, c10::SmallVectorImpl<Operand>& operands) {
  for (size_t i = 0; i < args.size(); ++i) {
    for (size_t j = 0; args[i].tensor && j < i; ++j) {
      if (!args[j].tensor || !(args[i].written || args[j].written) || !(operands[i].value == operands[j].value)) {
        continue;
      }
      if (args[i].tensor == args[j].tensor) {
        operands[i].view = operands[j].view;
      } else if (!operands[i].view && !operands[j].view) {
        operands[i].view = trace_.own(Geometry::of(*args[i].tensor));
      }
    }
  }
}

StreamContext::Written StreamContext::written_storages(c10::ArrayRef<TensorArg> args) {
  Written written;
  SmallSet<const LazyStorageImpl*> seen;
  for (const TensorArg& arg : args) {
    if (arg.written && seen.insert(arg.storage)) {
      written.push_back(arg.storage);
    }
  }
  return written;
}

const Schedule& StreamContext::schedule() {
  const auto& flag = config().schedule;
  if (const uint64_t version = flag.version(); schedule_version_ != version) {
    schedule_ = *Schedule::parse(flag.get());
    schedule_version_ = version;
  }
  return schedule_;
}

bool StreamContext::decide_cut() {
  if (const Schedule& schedule = this->schedule(); schedule.is_set()) {
    const bool ends_here = schedule.cuts_after(recorded_);
    if (ends_here) {
      cut_policy_.cut_here();
    }
    return ends_here;
  }
  // One over a list of tensors, such as an optimizer's step, counts for several.
  constexpr size_t kOperandsOfNode = 8;
  const size_t nodes = std::max(trace_.size(), trace_.sizes().operands / kOperandsOfNode);
  return cut_policy_.should_cut({.nodes = nodes, .bytes = trace_.pending_bytes()}, cut_limits());
}

Operand StreamContext::read(const TensorArg& arg, const Signature& signature, Aftermath& aftermath) {
  if (!arg.tensor) {
    return {};
  }
  if (!arg.storage) {
    return read_number(*arg.tensor, signature, aftermath);
  }
  if (!arg.view) {
    return read(*arg.storage, *arg.tensor, *arg.tensor, aftermath);
  }
  Geometry geometry = *arg.view;
  geometry.offset = arg.tensor->storage_offset();
  return read(*arg.storage, geometry, *arg.tensor, aftermath);
}

template <typename Tensor>
Operand StreamContext::read(
    LazyStorageImpl& storage,
    const Tensor& tensor,
    const c10::TensorImpl& identity,
    Aftermath& aftermath) {
  if (!storage.in_trace(epoch_)) {
    enter_trace(storage, tensor, aftermath);
  }
  if (storage.layout_->matches(tensor)) {
    return {storage.value_, nullptr};
  }
  Geometry view = Geometry::of(tensor);
  const bool is_part = static_cast<size_t>(tensor.numel()) * view.itemsize() < storage.nbytes();
  const uint32_t offset_scalar = is_part ? scalar_of_offset(storage, identity) : View::kFixed;
  return {storage.value_, trace_.own(std::move(view), offset_scalar)};
}

// One for all reads of a tensor, or equal calls would not be known as such; unless its storage is read in many places.
// Others that begin there have their own: which parts of its data happen to be drawn twice would make another graph. Of
// a tensor with the same address, while no view has been made, nobody has taken the place.
uint32_t StreamContext::scalar_of_offset(LazyStorageImpl& storage, const c10::TensorImpl& tensor) {
  const int64_t offset = tensor.storage_offset();
  const uint32_t num_views = storage.num_views();
  constexpr int kMaxPlaces = 16;
  if (storage.offset_epoch_ != epoch_) {
    storage.offset_epoch_ = epoch_;
    storage.latest_offset_ = OffsetScalar::kNone;
  }
  int num_places = 0;
  for (uint32_t i = storage.latest_offset_; i != OffsetScalar::kNone && num_places < kMaxPlaces;
       i = offsets_[i].previous) {
    const OffsetScalar& known = offsets_[i];
    if (known.tensor == &tensor && known.offset == offset && known.num_views == num_views) {
      return known.scalar;
    }
    ++num_places;
  }
  offsets_.push_back({&tensor, num_views, offset, trace_.add_scalar(offset), storage.latest_offset_});
  storage.latest_offset_ = static_cast<uint32_t>(offsets_.size() - 1);
  return offsets_.back().scalar;
}

// A 0-dim CPU tensor, which may change before the trace runs: a copy of it.
Operand StreamContext::read_number(const c10::TensorImpl& tensor, const Signature& signature, Aftermath& aftermath) {
  const OpInfo& op = *signature.op;
  const Number number = Number::of(tensor, /*prefer_float=*/signature.takes_float_numbers);
  const LayoutPtr& layout = number.layout();
  // Kernels of other libraries, which may be Python, might keep what they are given, and write it later.
  at::Tensor leaf = op.is_aten() ? context_.numbers().find(number) : at::Tensor();
  if (!leaf.defined()) {
    leaf = number.make_tensor();
    if (op.is_aten()) {
      aftermath.numbers.emplace_back(number, leaf);
    }
  }
  return {trace_.add_device_data(std::move(leaf), layout, {.read_only = true}), nullptr};
}

template <typename Tensor>
void StreamContext::enter_trace(LazyStorageImpl& storage, const Tensor& tensor, Aftermath& aftermath) {
  if (storage.state_ == LazyStorageImpl::State::kUnallocated) {
    const Value value = trace_.add_empty(Geometry::of_storage(tensor, storage.nbytes()));
    make_pending(storage, value, &trace_.layout(value));
    return;
  }
  Discarded discarded;
  LayoutPtr layout = storage.leaf_layout(tensor, discarded);
  if (discarded.leaf.defined()) {
    aftermath.discarded.push_back(std::move(discarded));
  }
  const bool submitted = storage.state_ == LazyStorageImpl::State::kSubmitted;
  storage.layout_ = &layout->geometry;
  storage.epoch_ = epoch_;
  storage.value_ = trace_.add_device_data(
      submitted ? at::Tensor() : storage.leaf(),
      std::move(layout),
      {static_cast<int64_t>(storage.id())});
  if (submitted) {
    const auto leaf = static_cast<uint32_t>(trace_.leaves().size() - 1);
    pending_leaves_.push_back({leaf, storage.layout_, storage.data_});
  }
}

Discarded StreamContext::make_pending(LazyStorageImpl& storage, Value value, const Geometry* layout) {
  Discarded discarded = storage.set_pending(*this, value, layout);
  storage.epoch_ = epoch_;
  if (storage.slot_ == LazyStorageImpl::kNoSlot) {
    storage.slot_ = static_cast<uint32_t>(pending_.size());
    pending_.push_back(weak_reference(storage));
  }
  return discarded;
}

void StreamContext::make_outputs(NodeId node, const Signature& signature, Outputs& outputs) {
  for (uint32_t i = 0; i < signature.outputs.size(); ++i) {
    auto owned = c10::make_intrusive<LazyStorageImpl>(signature.output_bytes[i], context_, /*resizable=*/true);
    LazyStorageImpl& storage = *owned;
    outputs.push_back(make_lazy_tensor(c10::Storage(std::move(owned)), signature.outputs[i]));
    make_pending(storage, {node, i}, &signature.outputs[i]); // the last step: one that is pending locks when it dies
  }
}

void StreamContext::drop(LazyStorageImpl& storage) {
  pending_[storage.slot_].reset();
  storage.slot_ = LazyStorageImpl::kNoSlot;
}

void StreamContext::hold_check(const c10::Storage& storage) {
  const auto* lazy = LazyStorageImpl::of(storage);
  if (lazy->state_ == LazyStorageImpl::State::kPending) {
    held_checks_.push_back(storage);
  } else if (lazy->state_ == LazyStorageImpl::State::kSubmitted) {
    checks_.push_back(lazy->data_);
  }
}

FailurePtr StreamContext::settle_leaves(Aftermath& aftermath) {
  for (const PendingLeaf& pending : pending_leaves_) {
    TORCH_INTERNAL_ASSERT(pending.data->is_ready(), "a leaf of the trace is still being computed");
    if (pending.data->failure) {
      return pending.data->failure;
    }
    trace_.leaves()[pending.leaf] = make_cpu_tensor(pending.data->memory, *pending.layout);
  }
  for (PendingLeaf& pending : pending_leaves_) {
    aftermath.discarded.push_back({{}, std::move(pending.data), {}});
  }
  pending_leaves_.clear();
  return nullptr;
}

// ---- running ----

Worker::Ticket StreamContext::submit(bool wake, const Cut& cut) {
  num_submitted_ = 0;
  if (recorded_ == submitted_place_ && pending_.empty()) {
    cut_policy_.cut(cut_limits());
    submitted_overlaps_ = true;
    return last_ticket_;
  }
  submitted_place_ = recorded_;
  submitted_overlaps_ = work_ <= overlapping_work_;
  const uint64_t place = submitted_place_;
  // Shared, because tasks are copyable; held by the task alone, so that it does not die here, under the lock.
  auto job = std::make_shared<Job>(take_job(cut));
  const auto step = cut_policy_.timed_step();
  auto task = [this, place, step, job = std::move(job), ticket = next_ticket(), delay = schedule().delay(place)] {
    if (delay.count() != 0) {
      std::this_thread::sleep_for(delay);
    }
    finish(job->roots.empty() ? JobReport() : run_job(std::move(*job)), ticket, step, place);
  };
  const auto by = !submitted_overlaps_ ? Worker::By::kWaiter : wake ? Worker::By::kWorker : Worker::By::kAnyone;
  return last_ticket_ = worker_.submit(std::move(task), by);
}

void StreamContext::note_awaited(const LazyStorageImpl& storage) {
  if (storage.state_ == LazyStorageImpl::State::kPending) {
    awaited_ = storage.value_.node;
  } else {
    cut_policy_.plans().note_also_awaited(num_timed_calls_until(storage.value_.node));
  }
}

size_t StreamContext::num_timed_calls_until(NodeId node) const {
  return static_cast<size_t>(std::upper_bound(timed_calls_.begin(), timed_calls_.end(), node) - timed_calls_.begin());
}

// Threads and processors may change, but not while a trace is recorded.
void StreamContext::choose_overlap() {
  work_ = 0;
  overlapping_work_ = overlap_.get();
  cut_policy_.use_plans(overlapping_work_ >= 0 && config().chunk_nodes.get() == 0 && !schedule().is_set());
}

void StreamContext::note_result() {
  std::vector<StepReport> reports;
  if (has_step_reports_.exchange(false)) {
    const std::lock_guard<std::mutex> lock(reports_mutex_);
    reports.swap(step_reports_);
  }
  StepPlans& plans = cut_policy_.plans();
  plans.costs().wake = worker_.wake_latency();
  plans.costs().waking = worker_.wake_cost();
  for (StepReport& report : reports) {
    plans.note_kernels(report.step, std::move(report.kernels), report.overhead);
  }
  plans.note_result();
}

void StreamContext::submit_wait(Worker& other, Worker::Ticket ticket) {
  // What comes next on the stream, such as an event, comes after the wait, which therefore counts as an op. If another
  // thread has recorded since the stream was handed over, its ops come after the wait, too.
  if (recorded_ == submitted_place_) {
    submitted_place_ = ++recorded_;
  }
  auto task = [this, &other, ticket, place = submitted_place_] {
    other.wait(ticket);
    complete(place);
  };
  last_ticket_ = worker_.submit(std::move(task), Worker::By::kWorker);
}

Job StreamContext::take_job(const Cut& cut) {
  Job job;
  job.provenance.cut = cut;
  if (config().debug.get()) {
    job.provenance.origins = origins_of(trace_);
  }
  job.newest_tensor = LazyStorageImpl::newest_id();
  job.device = device_;
  job.num_threads = at::get_num_threads();
  job.side = overlap_.may_run_side_calls() ? &worker_ : nullptr;
  for (auto& weak : pending_) {
    auto* storage = weak._unsafe_get_target();
    if (!storage) {
      continue; // died
    }
    // A strong reference would ask for Python's lock, if Python knows the storage. There is no need: who lets go of the
    // last one meanwhile waits for our lock, until the storage has no slot.
    if (weak.use_count() != 0) {
      job.roots.push_back(storage->value_);
      job.layouts.push_back(storage->layout_);
      job.results.push_back(c10::make_intrusive<FutureContents>(worker_, next_ticket()));
      storage->set_submitted(job.results.back(), cut_policy_.step());
    }
    storage->slot_ = LazyStorageImpl::kNoSlot;
  }
  job.may_teach = std::exchange(may_teach_, false) && may_teach(trace_, job.roots);
  if (job.may_teach) {
    teaching_job_ = next_ticket();
  }
  submit_checks(job);
  num_submitted_ = job.roots.size();
  start_ns_ = 0;
  pending_.clear();
  prediction_.cut(trace_);
  timed_calls_ = cut_policy_.plans().is_timing() ? calls_of(trace_) : std::vector<NodeId>();
  const auto awaited = std::exchange(awaited_, std::nullopt);
  cut_policy_.cut(cut_limits(), awaited ? num_timed_calls_until(*awaited) : SIZE_MAX);
  job.timed = cut_policy_.timed_step() != 0;
  choose_overlap();
  job.trace = std::exchange(trace_, Trace());
  trace_.reserve(prediction_.expected_size());
  job.pending_leaves = std::exchange(pending_leaves_, {});
  offsets_.clear();
  epoch_ = next_epoch();
  return job;
}

// Nobody may ever read: those that have passed make room.
void StreamContext::submit_checks(Job& job) {
  if (held_checks_.empty()) {
    return;
  }
  const auto passed = std::stable_partition(checks_.begin(), checks_.end(), [](const FutureContentsPtr& check) {
    return !check->is_ready() || check->failure;
  });
  job.passed_checks.assign(std::make_move_iterator(passed), std::make_move_iterator(checks_.end()));
  checks_.erase(passed, checks_.end());
  for (const c10::Storage& storage : held_checks_) {
    checks_.push_back(LazyStorageImpl::of(storage)->data_);
  }
  job.checks = std::exchange(held_checks_, {});
}

void StreamContext::finish(JobReport report, Worker::Ticket job, StepPlans::StepId timed_step, uint64_t place) {
  if (!report.failures.empty()) {
    keep_failures(report.failures);
  }
  if (!report.lessons.empty()) {
    const std::lock_guard<std::mutex> lock(reports_mutex_);
    lessons_.emplace_back(job, std::move(report.lessons));
    has_lessons_ = true;
  }
  if (timed_step != 0 && !report.kernels.empty()) {
    const std::lock_guard<std::mutex> lock(reports_mutex_);
    step_reports_.push_back({timed_step, std::move(report.kernels), report.overhead});
    has_step_reports_ = true;
  }
  complete(place);
}

void StreamContext::complete(uint64_t place) {
  completed_ = place;
  stamp_reached_events(c10::Stream(c10::Stream::UNSAFE, c10::Device(kLazyDevice, device_), id_));
}

// Those that have been seen make room for new ones, unless a program never waits.
void StreamContext::keep_failures(const std::vector<FailurePtr>& failures) {
  std::vector<FailurePtr> unseen; // swapped in, so that the others die outside of the lock
  const std::lock_guard<std::mutex> lock(reports_mutex_);
  std::copy_if(failures_.begin(), failures_.end(), std::back_inserter(unseen), is_unseen);
  std::copy_if(failures.begin(), failures.end(), std::back_inserter(unseen), is_unseen);
  unseen.resize(std::min(unseen.size(), kMaxFailures));
  failures_.swap(unseen);
}

void StreamContext::learn(Worker::Ticket job) {
  Worker::Ticket last = teaching_job_;
  if (last != 0 && last <= job) {
    teaching_job_.compare_exchange_strong(last, 0);
  }
  if (!has_lessons_) {
    return;
  }
  std::vector<std::vector<Lesson>> taught;
  {
    const std::lock_guard<std::mutex> lock(reports_mutex_);
    for (; !lessons_.empty() && lessons_.front().first <= job; lessons_.pop_front()) {
      taught.push_back(std::move(lessons_.front().second));
    }
    has_lessons_ = !lessons_.empty();
  }
  for (const auto& lessons : taught) {
    for (const Lesson& lesson : lessons) {
      learn_strides(*lesson.signature, lesson.output, lesson.strides);
    }
  }
}

FailurePtr StreamContext::take_failure() {
  std::vector<FailurePtr> failures;
  {
    const std::lock_guard<std::mutex> lock(reports_mutex_);
    failures_.swap(failures);
  }
  const auto first = std::find_if(failures.begin(), failures.end(), is_unseen);
  return first == failures.end() ? nullptr : *first;
}

} // namespace lazyplug
