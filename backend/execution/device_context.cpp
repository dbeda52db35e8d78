#include "backend/execution/device_context.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "backend/diagnostics/origins.h"
#include "backend/diagnostics/python_hooks.h"
#include "backend/diagnostics/sync_cause.h"
#include "common/config.h"
#include "common/metrics.h"
#include "device/cpu_allocator.h"
#include "device/fork.h"
#include "device/runtime.h"

namespace lazyplug {
namespace {

// How many jobs of a stream may be queued before recording waits for them.
constexpr Worker::Ticket kMaxQueuedJobs = 8;

void wait(Worker& worker, Worker::Ticket ticket) {
  if (!worker.has_run(ticket)) {
    without_gil([&] { worker.wait(ticket); });
  }
}

// The program waits, and so what has been taught takes effect.
void wait_and_learn(StreamContext& stream, Worker::Ticket ticket) {
  if (ticket != 0) {
    wait(stream.worker(), ticket);
    stream.learn(ticket);
  }
}

void note_origins(c10::ArrayRef<TensorArg> args, const Outputs& outputs, const char* location) {
  for (const TensorArg& arg : args) {
    if (arg.written) {
      note_origin(arg.storage->id(), location);
    }
  }
  for (const at::Tensor& output : outputs) {
    note_origin(LazyStorageImpl::of(output)->id(), location);
  }
}

void raise(const FailurePtr& failure) {
  if (failure && !failure->seen.exchange(true)) {
    rethrow(failure->error);
  }
}

} // namespace

void wait(const FutureContents& data) {
  if (!data.is_ready()) {
    without_gil([&] { data.wait(); });
  }
}

struct DeviceContexts {
  // Never destroyed: tensors may outlive static destruction.
  static DeviceContexts& get() {
    static auto* contexts = new DeviceContexts();
    return *contexts;
  }

  DeviceContexts() {
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
      contexts.emplace_back(new DeviceContext(i));
    }
  }

  std::vector<std::unique_ptr<DeviceContext>> contexts;
};

DeviceContext& DeviceContext::get(c10::DeviceIndex index) {
  auto& contexts = DeviceContexts::get().contexts;
  return *contexts[resolve_device_index(index)];
}

StreamContext& DeviceContext::stream(c10::StreamId id) {
  auto& slot = streams_[id];
  if (auto* found = slot.load(std::memory_order_acquire)) {
    return *found;
  }
  const Lock lock(mutex_);
  if (!slot.load()) {
    slot.store(new StreamContext(*this, id), std::memory_order_release);
  }
  return *slot.load();
}

std::vector<StreamContext*> DeviceContext::streams() {
  std::vector<StreamContext*> streams;
  for (const auto& slot : streams_) {
    if (auto* stream = slot.load(std::memory_order_acquire)) {
      streams.push_back(stream);
    }
  }
  return streams;
}

// ---- recording ----

Outputs DeviceContext::record(
    const SignaturePtr& signature,
    c10::ArrayRef<TensorArg> args,
    c10::ArrayRef<c10::IValue> scalars) {
  ensure_initialized();
  StreamContext& stream = this->stream(current_stream_id(index_)); // may take the lock
  Outputs outputs;                                                 // die without the lock
  Lock lock(mutex_);
  record_locked(stream, signature, args, scalars, lock, outputs);
  return outputs;
}

std::optional<DeviceContext::Predicted> DeviceContext::record_predicted(
    const OpInfo& op,
    c10::function_ref<bool(PredictedCall&)> read) {
  static Counter& hits = counter("Predicted");
  std::optional<Predicted> recorded; // what is returned everywhere, so that it is made in its place
  ensure_initialized();
  StreamContext& stream = this->stream(current_stream_id(index_));
  Lock lock(mutex_);
  const SignaturePtr& expected = stream.predicted();
  if (!expected || expected->op != &op) {
    return recorded;
  }
  PredictedCall call(*expected, *this, device());
  if (!call.begin() || !read(call) || !call.is_complete()) {
    return recorded;
  }
  hits.add();
  call.draw_seed();
  recorded.emplace();
  recorded->signature = expected; // what is expected changes
  record_locked(stream, recorded->signature, call.tensors(), call.scalars(), lock, recorded->outputs);
  return recorded;
}

void DeviceContext::record_locked(
    StreamContext& stream,
    const SignaturePtr& signature,
    c10::ArrayRef<TensorArg> args,
    c10::ArrayRef<c10::IValue> scalars,
    Lock& lock,
    Outputs& outputs) {
  const char* location = nullptr;
  if (config().debug.get()) {
    lock.unlock(); // Python's lock comes before ours
    location = current_location();
    lock.lock();
  }
  make_readable(args, stream, lock);
  stream.record(signature, args, scalars, location, lock.aftermath, outputs);
  if (location) {
    note_origins(args, outputs, location);
  }
  const bool is_cut = stream.decide_cut();
  lock.unlock();
  for (auto& [number, leaf] : lock.aftermath.numbers) {
    numbers_.add(number, std::move(leaf));
  }
  if (config().launch_blocking.get()) {
    const SyncCause cause("launch blocking");
    submit_and_wait(stream);
    raise(stream.take_failure());
  } else if (is_cut) {
    const SyncCause cause("trace full");
    hand_over(stream);
  }
}

// Whatever an argument waits for must be something that the reader's queue can
// wait for: data, not another trace.
void DeviceContext::make_readable(c10::ArrayRef<TensorArg> args, const StreamContext& reader, Lock& lock) {
  for (size_t i = 0; i < args.size();) {
    LazyStorageImpl* storage = args[i].storage;
    if (storage && storage->state_ == LazyStorageImpl::State::kPending && storage->stream_ != &reader) {
      StreamContext& writer = *storage->stream_;
      lock.unlock();
      hand_over(writer);
      lock.lock();
      i = 0; // the lock was free for a moment: look at all of them again
      continue;
    }
    if (storage) {
      settle(*storage, lock);
    }
    ++i;
  }
}

// Takes over what has been computed, and raises its error.
void DeviceContext::settle(LazyStorageImpl& storage, Lock& lock) {
  if (storage.state_ == LazyStorageImpl::State::kSubmitted && storage.data_->is_ready()) {
    lock.discard(storage.take_over_data());
  }
  if (!storage.failure_) {
    return;
  }
  const bool lost = storage.state_ == LazyStorageImpl::State::kFailed;
  FailurePtr failure = lost ? storage.failure_ : std::exchange(storage.failure_, nullptr);
  if (!failure->seen.exchange(true) || lost) {
    lock.unlock();
    rethrow(failure->error);
  }
  lock.discard({{}, {}, std::move(failure)});
}

// ---- storages ----

// What the storage waits for will not be its contents.
void DeviceContext::drop_pending(LazyStorageImpl& storage) {
  if (storage.slot_ != LazyStorageImpl::kNoSlot) {
    storage.stream_->drop(storage);
  }
}

void DeviceContext::adopt(LazyStorageImpl& storage, c10::Storage memory) {
  check_not_bad_fork();
  if (config().debug.get()) {
    note_origin(storage.id(), current_location());
  }
  Lock lock(mutex_);
  drop_pending(storage);
  storage.epoch_ = 0;
  storage.step_ = 0;
  lock.discard(storage.set_available(std::move(memory)));
  lock.discard({{}, {}, std::exchange(storage.failure_, nullptr)});
}

void DeviceContext::fail(LazyStorageImpl& storage, const std::exception_ptr& error) {
  check_not_bad_fork();
  Lock lock(mutex_);
  drop_pending(storage);
  lock.discard(storage.set_failed(std::make_shared<Failure>(error)));
}

LazyStorageImpl::State DeviceContext::state_of(const LazyStorageImpl& storage) {
  check_not_bad_fork();
  const Lock lock(storage.context().mutex_);
  return storage.state_;
}

bool DeviceContext::is_ready(const LazyStorageImpl& storage) {
  check_not_bad_fork();
  const Lock lock(storage.context().mutex_);
  switch (storage.state_) {
    case LazyStorageImpl::State::kPending:
      return false;
    case LazyStorageImpl::State::kSubmitted:
      return storage.data_->is_ready();
    default:
      return true;
  }
}

// A read ends the step, also of what an earlier piece of the step computes, and
// whether that has been computed by now or not: or each step would be cut at
// other ops. Who reads does not wait for the rest, except for kernels that may
// have something to teach. Returns the stream whose step ends with this read.
StreamContext* DeviceContext::end_step(const LazyStorageImpl& storage, Lock& lock) {
  if (storage.state_ == LazyStorageImpl::State::kPending) {
    storage.stream_->note_awaited(storage);
    return storage.stream_;
  }
  if (storage.step_ == 0) {
    return nullptr;
  }
  StreamContext& stream = *storage.stream_;
  if (storage.step_ != stream.step()) {
    if (storage.step_ + 1 == stream.step()) {
      stream.note_awaited(storage);
    }
    return nullptr;
  }
  lock.unlock();
  hand_over(stream);
  wait_and_learn(stream, stream.teaching_job());
  lock.lock();
  return &stream;
}

template <typename Use>
auto DeviceContext::use_available(LazyStorageImpl& storage, const Use& use) {
  ensure_initialized();
  const SyncCause cause("memory access"); // unless the caller knows better
  Lock lock(storage.context().mutex_);
  make_available(storage, lock);
  return use();
}

c10::Storage DeviceContext::materialize(LazyStorageImpl& storage) {
  return use_available(storage, [&] { return storage.memory_; });
}

at::Tensor DeviceContext::read(LazyStorageImpl& storage, const c10::TensorImpl& tensor) {
  return use_available(storage, [&] { return storage.part(tensor); });
}

bool DeviceContext::read_bytes(LazyStorageImpl& storage, size_t offset, size_t num_bytes, void* destination) {
  return use_available(storage, [&] {
    const bool is_there = offset + num_bytes <= storage.memory_.nbytes();
    if (is_there) {
      std::memcpy(destination, static_cast<const std::byte*>(storage.memory_.data()) + offset, num_bytes);
    }
    return is_there;
  });
}

void DeviceContext::make_available(LazyStorageImpl& storage, Lock& lock) {
  DeviceContext& context = storage.context();
  StreamContext* ended = context.end_step(storage, lock);
  while (true) {
    settle(storage, lock);
    switch (storage.state_) {
      case LazyStorageImpl::State::kAvailable:
        if (!ended) {
          return;
        }
        ended->note_result();
        raise_failed_check(*std::exchange(ended, nullptr), lock);
        break; // the lock may have been free
      case LazyStorageImpl::State::kUnallocated:
        allocate(storage, lock);
        break;
      case LazyStorageImpl::State::kFailed:
        TORCH_INTERNAL_ASSERT(false, "a failed storage without a failure");
      case LazyStorageImpl::State::kPending: {
        StreamContext& stream = *storage.stream_;
        lock.unlock();
        context.submit_and_wait(stream);
        lock.lock();
        break;
      }
      case LazyStorageImpl::State::kSubmitted: {
        FutureContentsPtr data = storage.data_;
        lock.unlock();
        wait(*data);
        data.reset(); // perhaps the last reference
        lock.lock();
        break;
      }
    }
  }
}

void DeviceContext::hold_check(const c10::Storage& storage) {
  check_not_bad_fork();
  if (auto* lazy = LazyStorageImpl::of(storage)) {
    const Lock lock(lazy->context().mutex_);
    if (lazy->stream_) {
      lazy->stream_->hold_check(storage);
    }
  }
}

void DeviceContext::raise_failed_check(StreamContext& stream, Lock& lock) {
  // One by one: those behind one that raises are for the next read. What dies must not hold the lock.
  while (FutureContentsPtr check = stream.take_check()) {
    lock.unlock();
    wait(*check);
    raise(check->failure);
    check = nullptr;
    lock.lock();
  }
}

// Without the lock; meanwhile somebody may give the storage contents.
void DeviceContext::allocate(LazyStorageImpl& storage, Lock& lock) {
  const size_t nbytes = storage.nbytes();
  lock.unlock();
  c10::Storage memory = allocate_storage(nbytes, storage.device().index());
  lock.lock();
  const bool is_still_empty = storage.state_ == LazyStorageImpl::State::kUnallocated && storage.nbytes() == nbytes;
  lock.discard(is_still_empty ? storage.set_available(std::move(memory)) : Discarded{std::move(memory), {}, {}});
}

void DeviceContext::drop_leaf(LazyStorageImpl& storage) {
  Lock lock(storage.context().mutex_);
  lock.discard({{}, {}, {}, std::exchange(storage.leaf_, at::Tensor())});
}

namespace {

// By others than its storage, who asks, and the caller's `num_held` references.
bool is_seen(const c10::Storage& memory, size_t num_held) {
  return memory.use_count() > 2 + num_held;
}

} // namespace

c10::Storage DeviceContext::materialize_for_sharing(LazyStorageImpl& storage, size_t num_held) {
  c10::Storage memory = materialize(storage);
  drop_leaf(storage);
  if (is_seen(memory, num_held)) {
    memory = c10::Storage();
    for (StreamContext* stream : storage.context().streams()) {
      storage.context().submit_and_wait(*stream);
    }
    memory = materialize(storage);
  }
  // The count was read relaxed: what the last readers did comes before.
  std::atomic_thread_fence(std::memory_order_acquire);
  return memory;
}

c10::Storage DeviceContext::materialize_for_write(LazyStorageImpl& storage, size_t num_held) {
  c10::Storage memory = materialize_for_sharing(storage, num_held);
  if (is_seen(memory, num_held)) {
    c10::Storage copy = allocate_storage(memory.nbytes(), storage.device().index());
    std::copy_n(static_cast<const char*>(memory.data()), memory.nbytes(), static_cast<char*>(copy.mutable_data()));
    refresh(storage, copy, storage.nbytes());
    return copy;
  }
  std::atomic_thread_fence(std::memory_order_acquire); // as above
  return memory;
}

void DeviceContext::resize(LazyStorageImpl& storage, size_t nbytes) {
  check_not_bad_fork();
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  {
    Lock lock(storage.context().mutex_);
    if (storage.state_ == LazyStorageImpl::State::kUnallocated || storage.nbytes() == 0) {
      drop_pending(storage);
      lock.discard(storage.set_unallocated(nbytes));
      return;
    }
  }
  const c10::Storage old_memory = materialize_for_sharing(storage);
  const size_t kept = std::min(nbytes, storage.nbytes());
  c10::Storage memory = allocate_storage(nbytes, storage.device().index());
  std::copy_n(static_cast<const char*>(old_memory.data()), kept, static_cast<char*>(memory.mutable_data()));
  refresh(storage, memory, nbytes);
}

void DeviceContext::refresh(LazyStorageImpl& storage, const c10::Storage& memory, size_t nbytes) {
  check_not_bad_fork();
  Lock lock(storage.context().mutex_);
  storage.set_nbytes(nbytes);
  lock.discard(storage.set_available(memory));
}

void DeviceContext::forget(LazyStorageImpl& storage) {
  // In a forked child the lock may be held for ever.
  if (storage.slot_ != LazyStorageImpl::kNoSlot && !is_in_bad_fork()) {
    const Lock lock(mutex_);
    drop_pending(storage);
  }
}

// ---- running ----

DeviceContext::Submitted DeviceContext::submit(StreamContext& stream, bool wake) {
  Cut cut = cut_here(); // Python's lock comes before ours
  Lock lock(mutex_);
  const size_t num_nodes = stream.trace().size();
  const size_t bytes = stream.trace().pending_bytes();
  const int64_t start_ns = stream.start_ns();
  cut.trace = stream.epoch();
  const Worker::Ticket ticket = stream.submit(wake, cut);
  const bool overlaps = stream.submitted_overlaps();
  const size_t num_results = stream.num_submitted();
  lock.unlock();
  if (num_results != 0) {
    note_cut(cut, num_nodes, num_results, bytes, start_ns);
  }
  return {ticket, bytes, overlaps};
}

// Nobody is woken: this thread waits, and so it works.
void DeviceContext::submit_and_wait(StreamContext& stream) {
  wait_and_learn(stream, submit(stream, /*wake=*/false).ticket);
}

// Somebody will want it; this thread does not wait, unless nobody else computes.
DeviceContext::Submitted DeviceContext::start(StreamContext& stream) {
  const Submitted submitted = submit(stream, /*wake=*/true);
  if (!submitted.overlaps) {
    wait_and_learn(stream, submitted.ticket);
  }
  return submitted;
}

// Likewise, or too much is queued by now.
DeviceContext::Submitted DeviceContext::hand_over(StreamContext& stream) {
  const Submitted submitted = start(stream);
  const bool large = static_cast<int64_t>(submitted.bytes) >= config().max_pending_bytes.get() / 4;
  const Worker::Ticket queued = large ? 1 : kMaxQueuedJobs;
  if (submitted.ticket > queued) {
    wait_and_learn(stream, submitted.ticket - queued);
  }
  return submitted;
}

void DeviceContext::flush() {
  ensure_initialized();
  for (StreamContext* stream : streams()) {
    hand_over(*stream);
  }
}

void DeviceContext::flush_stream(c10::StreamId id) {
  ensure_initialized();
  start(stream(id)); // a query waits for nobody
}

// The other streams' workers compute meanwhile. Nobody is woken for the first, on which most programs record.
void DeviceContext::finish() {
  ensure_initialized();
  const auto streams = this->streams();
  for (size_t i = 1; i < streams.size(); ++i) {
    hand_over(*streams[i]);
  }
  for (StreamContext* stream : streams) {
    submit_and_wait(*stream);
  }
}

void DeviceContext::synchronize() {
  finish();
  for (StreamContext* stream : streams()) {
    raise(stream->take_failure());
  }
}

void DeviceContext::synchronize_stream(c10::StreamId id, uint64_t place) {
  ensure_initialized();
  StreamContext& stream = this->stream(id);
  if (stream.completed() < place) {
    submit_and_wait(stream);
  }
  raise(stream.take_failure());
}

void DeviceContext::wait_for(c10::Stream waiting, c10::Stream stream, uint64_t place) {
  DeviceContext& other = get(stream.device_index());
  StreamContext& source = other.stream(stream.id());
  if (waiting == stream || source.completed() >= place) {
    return;
  }
  const Worker::Ticket ticket = other.hand_over(source).ticket;
  DeviceContext& context = get(waiting.device_index());
  StreamContext& target = context.stream(waiting.id());
  context.hand_over(target);
  const Lock lock(context.mutex_);
  target.submit_wait(source.worker(), ticket);
}

void DeviceContext::stop_workers() {
  if (is_in_bad_fork()) {
    return; // they are the parent's, who may have held their locks
  }
  for (const auto& context : DeviceContexts::get().contexts) {
    for (StreamContext* stream : context->streams()) {
      stream->worker().stop();
    }
  }
}

// ---- introspection ----

uint64_t DeviceContext::recorded(c10::StreamId id) {
  return stream(id).recorded();
}

uint64_t DeviceContext::completed(c10::StreamId id) {
  return stream(id).completed();
}

size_t DeviceContext::pending_nodes() {
  check_not_bad_fork();
  const Lock lock(mutex_);
  size_t nodes = 0;
  for (StreamContext* stream : streams()) {
    nodes += stream->trace().size();
  }
  return nodes;
}

} // namespace lazyplug
