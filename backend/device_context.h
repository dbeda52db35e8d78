#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/cut_policy.h"
#include "backend/lazy_storage.h"
#include "lowering/computation.h"
#include "lowering/ir.h"

namespace lazyplug {

// A tensor argument as a call sees it.
struct TensorArg {
  const c10::TensorImpl* tensor = nullptr; // null: undefined
  bool written = false;
  bool out = false; // passed as out=
};

// One device: its trace, and the storages that wait for it.
//
// The trace is an ordered stream, shared by all threads that use the device. A
// read of anything pending flushes all of it, in program order; so does a trace
// that has become long enough (CutPolicy).
//
// Locking: `mutex_` guards the trace and every storage of the device; it is held
// for the few instructions that record a node, never while a kernel, a Meta
// kernel or Python runs. `run_mutex_` is held while a computation runs and its
// results are delivered, so that computations of a device run one after the
// other. Order: run_mutex_ before mutex_. Whoever holds mutex_ and finds a
// storage that is running lets go and waits for run_mutex_.
class DeviceContext {
 public:
  static DeviceContext& get(c10::DeviceIndex index);

  // Appends a call. `args` are its tensor arguments in order. Returns the
  // fresh outputs, as tensors. Raises the error of an argument that failed.
  std::vector<at::Tensor>
  record(const SignaturePtr& signature, c10::ArrayRef<TensorArg> args, c10::ArrayRef<c10::IValue> scalars);

  // Gives the storage contents that are already in memory.
  void adopt(LazyStorageImpl& storage, c10::Storage memory);

  // Makes the storage available, and returns its memory. Rethrows the error if
  // its contents could not be computed.
  static c10::Storage materialize(LazyStorageImpl& storage);
  // The same for memory that is about to be written in place: nothing that is
  // still pending may read it.
  static c10::Storage materialize_for_write(LazyStorageImpl& storage);

  // Changes the size; contents are kept as far as they fit.
  static void resize(LazyStorageImpl& storage, size_t nbytes);
  // Takes over what has been done to the size or address of the memory.
  static void refresh(LazyStorageImpl& storage, const c10::Storage& memory);

  // Runs everything pending. Errors stay with the results they spoil.
  void flush();
  // Runs everything pending, and raises the first error that nobody has seen.
  void synchronize();

  // The pending program that computes these storages, as text.
  std::string text(c10::ArrayRef<LazyStorageImpl*> storages);
  size_t pending_nodes();
  // How many ops have been recorded, and how many of them have run, so far.
  uint64_t recorded() const {
    return recorded_;
  }
  uint64_t completed() const {
    return completed_;
  }

  // Called when a storage dies.
  void forget(LazyStorageImpl& storage);

 private:
  friend struct DeviceContexts;
  using Lock = std::unique_lock<std::mutex>;
  using StoragePtr = c10::intrusive_ptr<LazyStorageImpl>;

  // A trace taken from the context, and the storages that wait for it.
  struct Job {
    Trace trace;
    std::vector<StoragePtr> storages;
    std::vector<Value> roots;
    std::vector<const Geometry*> layouts;
    uint64_t end = 0; // ops recorded up to and with this job
  };

  explicit DeviceContext(c10::DeviceIndex index) : index_(index) {}

  using Graveyard = c10::SmallVector<c10::Storage, 2>; // memory to free without the lock
  using Written = c10::SmallVector<LazyStorageImpl*, 4>;

  // The distinct storages that a call writes, in the order of its operands.
  static Written written_storages(c10::ArrayRef<TensorArg> args);
  void keep_identities(c10::ArrayRef<TensorArg> args, c10::SmallVectorImpl<Operand>& operands);
  bool is_full();
  void wait_until_readable(c10::ArrayRef<TensorArg> args, Lock& lock);
  void wait_for_run(Lock& lock);
  Lock lock_runs();
  void raise_failure(LazyStorageImpl& storage);
  void note_failure(const FailurePtr& failure);
  Operand read(const TensorArg& arg);
  void enter_trace(LazyStorageImpl& storage, const c10::TensorImpl& tensor);
  Operand read_cpu_scalar(const c10::TensorImpl& tensor);
  std::vector<at::Tensor> make_outputs(NodeId node, const SignaturePtr& signature);
  // Returns the memory that the storage had.
  c10::Storage make_pending(LazyStorageImpl& storage, Value value, const Geometry* layout);
  void drop_slot(LazyStorageImpl& storage);

  Job take_job();
  void run(Job& job);
  void deliver(Job& job, std::vector<ComputationOutput> outputs);
  c10::Storage result_memory(Job& job, size_t root, at::Tensor result);
  void fail(Job& job, const std::exception_ptr& error);

  const c10::DeviceIndex index_;
  std::mutex run_mutex_;
  std::atomic<std::thread::id> runner_{}; // the thread that holds run_mutex_ in order to run
  std::mutex mutex_;
  Trace trace_;
  uint64_t epoch_ = 1;
  // By creation. Weak references, so that a storage can be revived, or found
  // dead, while its last owner is letting go of it on another thread.
  std::vector<c10::weak_intrusive_ptr<LazyStorageImpl>> pending_;
  CutPolicy cut_policy_;
  FailurePtr first_failure_; // of those that nobody has seen
  std::atomic<uint64_t> recorded_{0};
  std::atomic<uint64_t> completed_{0};
};

} // namespace lazyplug
