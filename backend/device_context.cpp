#include "backend/device_context.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>

#include "backend/computation_cache.h"
#include "backend/python_hooks.h"
#include "backend/signature_cache.h"
#include "common/config.h"
#include "common/metrics.h"
#include "device/event.h"
#include "device/fork.h"
#include "device/runtime.h"
#include "lowering/dump.h"
#include "lowering/execution_guard.h"
#include "lowering/runtime_ops.h"

namespace lazyplug {
namespace {

// The layout by which a whole storage enters a trace: that of the tensor which
// reads it, if it covers the storage, else a flat one.
Geometry storage_layout(const LazyStorageImpl& storage, const c10::TensorImpl& tensor) {
  const auto dtype = c10::typeMetaToScalarType(tensor.dtype());
  const size_t nbytes = storage.nbytes();
  const size_t itemsize = c10::elementSize(dtype);
  if (tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense_or_false() &&
      static_cast<size_t>(tensor.numel()) * itemsize == nbytes) {
    Geometry layout = Geometry::of(tensor);
    layout.conj = layout.neg = layout.wrapped_number = false;
    return layout;
  }
  const bool divisible = nbytes % itemsize == 0;
  return Geometry::contiguous(
      divisible ? dtype : c10::ScalarType::Byte,
      {static_cast<int64_t>(divisible ? nbytes / itemsize : nbytes)});
}

c10::Storage allocate(size_t nbytes) {
  return c10::Storage(
      c10::Storage::use_byte_size_t(),
      static_cast<int64_t>(nbytes),
      c10::GetCPUAllocator(),
      /*resizable=*/true);
}

// One failure per error, however many results it spoils.
FailurePtr find_or_add(std::vector<FailurePtr>& failures, const ComputationOutput& output) {
  for (const auto& failure : failures) {
    if (failure->error == output.error) {
      return failure;
    }
  }
  failures.push_back(std::make_shared<Failure>(output.error));
  return failures.back();
}

void add_location(const std::exception_ptr& error, const char* location) {
  try {
    std::rethrow_exception(error);
  } catch (c10::Error& raised) {
    raised.add_context(std::string("recorded at ") + location);
  } catch (...) {
    // Errors of other kinds have no room for it.
  }
}

// Names the user's lines, where they are known. The computation cannot: it may
// have been compiled for other lines.
void add_locations(const Trace& trace, const std::vector<ComputationOutput>& outputs) {
  std::vector<std::exception_ptr> done;
  for (const ComputationOutput& output : outputs) {
    const char* location = output.failed_node == Value::kNone ? nullptr : trace.node(output.failed_node).location;
    if (output.error && location && std::find(done.begin(), done.end(), output.error) == done.end()) {
      add_location(output.error, location);
      done.push_back(output.error);
    }
  }
}

c10::weak_intrusive_ptr<LazyStorageImpl> weak_reference(LazyStorageImpl& storage) {
  c10::raw::weak_intrusive_ptr::incref(&storage);
  return c10::weak_intrusive_ptr<LazyStorageImpl>::reclaim(&storage);
}

} // namespace

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

// ---- recording ----

std::vector<at::Tensor> DeviceContext::record(
    const SignaturePtr& signature,
    c10::ArrayRef<TensorArg> args,
    c10::ArrayRef<c10::IValue> scalars) {
  static Counter& recorded = counter("NodesRecorded");
  const char* location = config().debug.get() ? current_location() : nullptr;
  ensure_initialized();
  Graveyard graveyard; // before the lock, so that it is emptied after it
  Lock lock(mutex_);
  wait_until_readable(args, lock);
  c10::SmallVector<Operand, 8> operands;
  for (const TensorArg& arg : args) {
    operands.push_back(read(arg));
  }
  if (!signature->written.empty()) {
    keep_identities(args, operands);
  }
  const auto written = written_storages(args);
  const NodeId node = trace_.add_call(signature, operands, scalars, static_cast<uint32_t>(written.size()), location);
  recorded.add();
  ++recorded_;
  uint32_t output = static_cast<uint32_t>(signature->outputs.size());
  for (LazyStorageImpl* storage : written) {
    graveyard.push_back(make_pending(*storage, {node, output++}, storage->layout_));
  }
  auto outputs = make_outputs(node, signature);
  cut_policy_.note(signature->hash.lo);
  const bool full = is_full();
  lock.unlock();
  if (config().launch_blocking.get()) {
    synchronize();
  } else if (full) {
    flush();
  }
  return outputs;
}

// Kernels that write ask whether two arguments are one tensor. One tensor that
// is read twice becomes one operand, and different tensors different ones.
void DeviceContext::keep_identities(c10::ArrayRef<TensorArg> args, c10::SmallVectorImpl<Operand>& operands) {
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

DeviceContext::Written DeviceContext::written_storages(c10::ArrayRef<TensorArg> args) {
  Written written;
  for (const TensorArg& arg : args) {
    if (arg.tensor && arg.written) {
      auto* storage = LazyStorageImpl::of(arg.tensor);
      if (std::find(written.begin(), written.end(), storage) == written.end()) {
        written.push_back(storage);
      }
    }
  }
  return written;
}

bool DeviceContext::is_full() {
  // The bounds in bytes are to nodes what the flag is to its own minimum.
  const auto nodes = static_cast<int64_t>(trace_.size());
  const auto bytes = static_cast<int64_t>(trace_.pending_bytes());
  const int64_t max_bytes = config().max_pending_bytes.get();
  const bool may_cut = nodes >= config().min_cut_nodes.get() || bytes >= max_bytes / 4;
  const bool must_cut = nodes >= config().max_pending_nodes.get() || bytes >= max_bytes;
  return cut_policy_.should_cut(may_cut, must_cut);
}

void DeviceContext::wait_until_readable(c10::ArrayRef<TensorArg> args, Lock& lock) {
  for (size_t i = 0; i < args.size();) {
    auto* storage = args[i].tensor ? LazyStorageImpl::of(args[i].tensor) : nullptr;
    if (storage && storage->state_ == LazyStorageImpl::State::kRunning) {
      wait_for_run(lock);
      i = 0; // the lock was free for a moment: look at all of them again
      continue;
    }
    if (storage) {
      raise_failure(*storage);
    }
    ++i;
  }
}

void DeviceContext::raise_failure(LazyStorageImpl& storage) {
  if (!storage.failure_) {
    return;
  }
  const FailurePtr failure = storage.failure_;
  const bool lost = storage.state_ == LazyStorageImpl::State::kFailed;
  if (!lost) {
    storage.failure_ = nullptr;
  }
  if (!failure->seen.exchange(true) || lost) {
    rethrow(failure->error);
  }
}

void DeviceContext::wait_for_run(Lock& lock) {
  lock.unlock();
  lock_runs().unlock();
  lock.lock();
}

DeviceContext::Lock DeviceContext::lock_runs() {
  TORCH_CHECK(
      runner_.load() != std::this_thread::get_id(),
      "a kernel that runs on the lazy device needs a result of the same device that is still pending");
  return Lock(run_mutex_);
}

Operand DeviceContext::read(const TensorArg& arg) {
  if (!arg.tensor) {
    return {};
  }
  auto* storage = LazyStorageImpl::of(arg.tensor);
  if (!storage) {
    return read_cpu_scalar(*arg.tensor);
  }
  if (!storage->in_trace(epoch_)) {
    enter_trace(*storage, *arg.tensor);
  }
  if (storage->layout_->matches(*arg.tensor)) {
    return {storage->value_, nullptr};
  }
  return {storage->value_, trace_.own(Geometry::of(*arg.tensor))};
}

Operand DeviceContext::read_cpu_scalar(const c10::TensorImpl& tensor) {
  // A copy, because the tensor may change before the trace runs.
  Geometry layout = Geometry::contiguous(c10::typeMetaToScalarType(tensor.dtype()), {});
  layout.wrapped_number = tensor.is_wrapped_number();
  c10::Storage memory = allocate(layout.itemsize());
  std::memcpy(memory.mutable_data(), tensor.data(), layout.itemsize());
  at::Tensor data = make_cpu_tensor(std::move(memory), layout);
  return {trace_.add_device_data(std::move(data), std::move(layout)), nullptr};
}

void DeviceContext::enter_trace(LazyStorageImpl& storage, const c10::TensorImpl& tensor) {
  Geometry layout = storage_layout(storage, tensor);
  if (storage.state_ == LazyStorageImpl::State::kUnallocated) {
    const Value value = trace_.add_empty(std::move(layout));
    make_pending(storage, value, &trace_.layout(value));
    return;
  }
  at::Tensor data = make_cpu_tensor(storage.memory_, layout);
  storage.value_ = trace_.add_device_data(std::move(data), std::move(layout));
  storage.layout_ = &trace_.layout(storage.value_);
  storage.epoch_ = epoch_;
}

c10::Storage DeviceContext::make_pending(LazyStorageImpl& storage, Value value, const Geometry* layout) {
  c10::Storage old_memory = storage.set_pending(value, layout);
  storage.epoch_ = epoch_;
  if (storage.slot_ == LazyStorageImpl::kNoSlot) {
    storage.slot_ = static_cast<uint32_t>(pending_.size());
    pending_.push_back(weak_reference(storage));
  }
  return old_memory;
}

std::vector<at::Tensor> DeviceContext::make_outputs(NodeId node, const SignaturePtr& signature) {
  std::vector<at::Tensor> outputs;
  outputs.reserve(signature->outputs.size());
  const c10::Device device(kLazyDevice, index_);
  for (uint32_t i = 0; i < signature->outputs.size(); ++i) {
    auto storage = c10::make_intrusive<LazyStorageImpl>(signature->output_bytes[i], device, /*resizable=*/true);
    make_pending(*storage, {node, i}, &signature->outputs[i]);
    outputs.push_back(make_lazy_tensor(c10::Storage(std::move(storage)), signature->outputs[i]));
  }
  return outputs;
}

// ---- storages ----

void DeviceContext::adopt(LazyStorageImpl& storage, c10::Storage memory) {
  Lock lock(mutex_);
  // What is running would be delivered over the new contents.
  while (storage.state_ == LazyStorageImpl::State::kRunning) {
    wait_for_run(lock);
  }
  drop_slot(storage);
  storage.epoch_ = 0;
  storage.failure_ = nullptr;
  const c10::Storage old_memory = storage.set_available(std::move(memory));
  lock.unlock(); // before the old memory goes
}

c10::Storage DeviceContext::materialize(LazyStorageImpl& storage) {
  ensure_initialized();
  DeviceContext& context = storage.context();
  Lock lock(context.mutex_);
  while (true) {
    context.raise_failure(storage);
    switch (storage.state_) {
      case LazyStorageImpl::State::kAvailable:
        return storage.memory_;
      case LazyStorageImpl::State::kUnallocated:
        storage.set_available(allocate(storage.nbytes()));
        return storage.memory_;
      case LazyStorageImpl::State::kFailed:
        TORCH_INTERNAL_ASSERT(false, "a failed storage without a failure");
      case LazyStorageImpl::State::kPending:
        lock.unlock();
        context.flush();
        lock.lock();
        break;
      case LazyStorageImpl::State::kRunning:
        context.wait_for_run(lock);
        break;
    }
  }
}

c10::Storage DeviceContext::materialize_for_write(LazyStorageImpl& storage) {
  DeviceContext& context = storage.context();
  while (true) {
    c10::Storage memory = materialize(storage);
    // A leaf of the trace may be read by a job until that has run.
    Lock lock(context.mutex_);
    const bool is_leaf = storage.in_trace(context.epoch_);
    if (!is_leaf) {
      context.wait_for_run(lock);
    }
    if (storage.state_ == LazyStorageImpl::State::kAvailable && !storage.in_trace(context.epoch_)) {
      return memory;
    }
    lock.unlock();
    memory = c10::Storage();
    context.flush();
  }
}

void DeviceContext::resize(LazyStorageImpl& storage, size_t nbytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  DeviceContext& context = storage.context();
  {
    Lock lock(context.mutex_);
    while (storage.state_ == LazyStorageImpl::State::kRunning) {
      context.wait_for_run(lock);
    }
    if (storage.state_ == LazyStorageImpl::State::kUnallocated || storage.nbytes() == 0) {
      context.drop_slot(storage);
      storage.set_unallocated(nbytes);
      return;
    }
  }
  const c10::Storage old_memory = materialize_for_write(storage);
  const size_t kept = std::min(nbytes, storage.nbytes());
  c10::Storage memory = allocate(nbytes);
  std::copy_n(static_cast<const char*>(old_memory.data()), kept, static_cast<char*>(memory.mutable_data()));
  refresh(storage, memory);
}

void DeviceContext::refresh(LazyStorageImpl& storage, const c10::Storage& memory) {
  const Lock lock(storage.context().mutex_);
  storage.set_nbytes(memory.nbytes());
  storage.set_available(memory);
}

void DeviceContext::forget(LazyStorageImpl& storage) {
  // In a forked child the lock may be held for ever.
  if (storage.slot_ != LazyStorageImpl::kNoSlot && !is_in_bad_fork()) {
    const Lock lock(mutex_);
    drop_slot(storage);
  }
}

void DeviceContext::drop_slot(LazyStorageImpl& storage) {
  if (storage.slot_ != LazyStorageImpl::kNoSlot) {
    pending_[storage.slot_].reset();
    storage.slot_ = LazyStorageImpl::kNoSlot;
  }
}

// ---- running ----

void DeviceContext::flush() {
  ensure_initialized();
  Job job; // before the lock, so that what it frees is freed after it
  const Lock run_lock = lock_runs();
  {
    const Lock lock(mutex_);
    job = take_job();
  }
  if (!job.roots.empty()) {
    runner_ = std::this_thread::get_id();
    run(job);
    runner_ = std::thread::id();
  }
  completed_ = job.end;
  stamp_reached_events(index_);
}

void DeviceContext::synchronize() {
  flush();
  FailurePtr failure;
  {
    const Lock lock(mutex_);
    std::swap(failure, first_failure_);
  }
  if (failure && !failure->seen.exchange(true)) {
    rethrow(failure->error);
  }
}

DeviceContext::Job DeviceContext::take_job() {
  Job job;
  for (auto& weak : pending_) {
    auto* raw = weak._unsafe_get_target();
    if (!raw) {
      continue; // died
    }
    raw->slot_ = LazyStorageImpl::kNoSlot;
    if (auto storage = weak.lock()) {
      storage->state_ = LazyStorageImpl::State::kRunning;
      job.roots.push_back(storage->value_);
      job.layouts.push_back(storage->layout_);
      job.storages.push_back(std::move(storage));
    }
  }
  pending_.clear();
  job.end = recorded_;
  job.trace = std::exchange(trace_, Trace());
  ++epoch_;
  return job;
}

void DeviceContext::run(Job& job) {
  static Counter& flushes = counter("Flush");
  static Counter& executed = counter("NodesExecuted");
  static Timer& time = timer("ExecuteTime");
  flushes.add();
  std::vector<ComputationOutput> outputs;
  try {
    const auto computation = find_or_compile(job.trace, job.roots);
    executed.add(static_cast<int64_t>(computation->num_ops()));
    const TimerScope scope(time);
    outputs = computation->run({std::move(job.trace.leaves()), std::move(job.trace.all_scalars())});
  } catch (...) {
    fail(job, std::current_exception());
    return;
  }
  const ExecutionGuard guard;
  deliver(job, std::move(outputs));
}

void DeviceContext::deliver(Job& job, std::vector<ComputationOutput> outputs) {
  std::vector<c10::Storage> memory(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    try {
      TORCH_INTERNAL_ASSERT(outputs[i].tensor.defined() || outputs[i].error, "a kernel returned no tensor");
      if (outputs[i].tensor.defined()) {
        memory[i] = result_memory(job, i, std::move(outputs[i].tensor));
      }
    } catch (...) {
      outputs[i].error = std::current_exception();
    }
  }
  add_locations(job.trace, outputs);
  const Lock lock(mutex_);
  std::vector<FailurePtr> failures;
  for (size_t i = 0; i < outputs.size(); ++i) {
    FailurePtr failure;
    if (outputs[i].error) {
      failure = find_or_add(failures, outputs[i]);
      note_failure(failure);
    }
    if (memory[i]) {
      job.storages[i]->set_available(std::move(memory[i]));
      job.storages[i]->failure_ = std::move(failure);
    } else {
      job.storages[i]->set_failed(std::move(failure));
    }
  }
}

c10::Storage DeviceContext::result_memory(Job& job, size_t root, at::Tensor result) {
  const Value value = job.roots[root];
  const Node& node = job.trace.node(value.node);
  const Geometry& layout = *job.layouts[root];
  if (node.kind == NodeKind::kCall && value.output < node.signature->outputs.size() &&
      result.strides() != c10::IntArrayRef(layout.strides)) {
    learn_strides(*node.signature, value.output, result.strides());
  }
  result = ensure_layout(result, layout);
  c10::Storage memory = result.storage();
  result.reset();
  // Two storages never share memory: a kernel may have returned its input.
  if (memory.use_count() > 1 && memory.nbytes() > 0) {
    static Counter& copies = counter("AliasedResultCopied");
    copies.add();
    c10::Storage copy = allocate(memory.nbytes());
    std::copy_n(static_cast<const char*>(memory.data()), memory.nbytes(), static_cast<char*>(copy.mutable_data()));
    return copy;
  }
  return memory;
}

void DeviceContext::fail(Job& job, const std::exception_ptr& error) {
  const Lock lock(mutex_);
  const auto failure = std::make_shared<Failure>(error);
  note_failure(failure);
  for (auto& storage : job.storages) {
    storage->set_failed(failure);
  }
}

void DeviceContext::note_failure(const FailurePtr& failure) {
  if (!first_failure_ || first_failure_->seen) {
    first_failure_ = failure;
  }
}

// ---- introspection ----

std::string DeviceContext::text(c10::ArrayRef<LazyStorageImpl*> storages) {
  const Lock lock(mutex_);
  std::vector<Value> roots;
  for (LazyStorageImpl* storage : storages) {
    if (storage->in_trace(epoch_)) {
      roots.push_back(storage->value_);
    }
  }
  return to_text(trace_, roots);
}

size_t DeviceContext::pending_nodes() {
  const Lock lock(mutex_);
  return trace_.size();
}

} // namespace lazyplug
