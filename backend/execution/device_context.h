#pragma once

#include <c10/util/FunctionRef.h>
#include <array>

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/execution/number_cache.h"
#include "backend/execution/predicted_call.h"
#include "backend/execution/stream_context.h"
#include "device/runtime.h"
#include "device/stream.h"

namespace lazyplug {

// One device: its streams, and the storages that live on it.
//
// A trace is an ordered program, shared by all threads that use the stream. A
// read of anything pending cuts it, in program order; so does a trace that has
// become long enough (CutPolicy). What has been cut is queued, and runs on the
// stream's worker, or on a thread that waits for it.
//
// Locking: `mutex_` guards the traces and every storage of the device; it is
// held for the few instructions that record a node or queue a job, never while
// a kernel, a Meta kernel, a deleter or Python runs: whoever waits for it may
// hold the GIL. So memory is taken, and errors are raised and freed, without
// it. A worker's mutex may be taken while it is held, not the other way round.
// No thread holds the mutexes of two devices.
class DeviceContext {
 public:
  static DeviceContext& get(c10::DeviceIndex index);
  c10::Device device() const {
    return lazy_device(index_);
  }

  // Appends a call to the trace of the calling thread's current stream. `args`
  // are its tensor arguments in order. Returns the fresh outputs, as tensors.
  // Raises the error of an argument that is known to have failed.
  Outputs record(const SignaturePtr& signature, c10::ArrayRef<TensorArg> args, c10::ArrayRef<c10::IValue> scalars);

  // The same for a call that is the one predicted; null, and nothing done, if
  // it is not. `read` reads the call's arguments against the signature, and
  // says whether they fit.
  struct Predicted {
    SignaturePtr signature;
    Outputs outputs;
  };
  std::optional<Predicted> record_predicted(const OpInfo& op, c10::function_ref<bool(PredictedCall&)> read);

  // Gives the storage contents that are already in memory.
  void adopt(LazyStorageImpl& storage, c10::Storage memory);

  // It could not be computed: as if a job had raised the error.
  void fail(LazyStorageImpl& storage, const std::exception_ptr& error);

  // Makes the storage available, and returns its memory. Rethrows the error if
  // its contents could not be computed.
  static c10::Storage materialize(LazyStorageImpl& storage);
  // The same, and returns what a tensor of the storage is on the CPU, for who reads it now. Others may be given the
  // same CPU tensor.
  static at::Tensor read(LazyStorageImpl& storage, const c10::TensorImpl& tensor);
  // The same for a few bytes, which are copied; false, and nothing done, if the contents end before them.
  static bool read_bytes(LazyStorageImpl& storage, size_t offset, size_t num_bytes, void* destination);
  static LazyStorageImpl::State state_of(const LazyStorageImpl& storage);
  // Whether materialize() would find the contents computed.
  static bool is_ready(const LazyStorageImpl& storage);
  // The same for memory that somebody else is going to see, and may write: nothing that is still pending reads it.
  // `num_held` references are the caller's.
  static c10::Storage materialize_for_sharing(LazyStorageImpl& storage, size_t num_held = 0);
  // The same for memory that is about to be written in place. Nobody else sees it: whoever does, but for the caller,
  // keeps what was there, as if the write were recorded.
  static c10::Storage materialize_for_write(LazyStorageImpl& storage, size_t num_held = 0);

  // The contents are of no interest, but whether they can be computed is: they are computed, though nobody holds the
  // storage, and the next read that ends the step raises their error.
  static void hold_check(const c10::Storage& storage);

  // Changes the size; contents are kept as far as they fit.
  static void resize(LazyStorageImpl& storage, size_t nbytes);
  // Takes over what has been done to the size or address of the memory, of which `nbytes` bytes are the storage's.
  static void refresh(LazyStorageImpl& storage, const c10::Storage& memory, size_t nbytes);

  // Queues everything pending, on all streams. Errors stay with the results
  // they spoil.
  void flush();
  void flush_stream(c10::StreamId id);
  // Runs everything pending.
  void finish();
  // The same, and raises the first error that nobody has seen.
  void synchronize();
  // The same for the ops of one stream up to a place.
  void synchronize_stream(c10::StreamId id, uint64_t place);
  // What is recorded on the stream `waiting` from now on runs after the place.
  static void wait_for(c10::Stream waiting, c10::Stream stream, uint64_t place);

  size_t pending_nodes();
  NumberCache& numbers() {
    return numbers_;
  }
  // How many ops of the stream have been recorded, and how many have run.
  uint64_t recorded(c10::StreamId id);
  uint64_t completed(c10::StreamId id);

  // Called when a storage dies.
  void forget(LazyStorageImpl& storage);

  // Ends the workers of all devices, after what each is running. From then on
  // work runs on the threads that wait for it.
  static void stop_workers();

 private:
  friend struct DeviceContexts;
  friend class PendingSliceReader;

  // Holds `mutex_`, and what is left to do when it is free again, also if
  // something raises.
  class Lock {
   public:
    explicit Lock(std::mutex& mutex) : lock_(mutex) {}
    void lock() {
      lock_.lock();
    }
    void unlock() {
      lock_.unlock();
      aftermath.discarded.clear();
    }
    void discard(Discarded discarded) {
      aftermath.discarded.push_back(std::move(discarded));
    }
    StreamContext::Aftermath aftermath;

   private:
    std::unique_lock<std::mutex> lock_; // the last member: the first to go
  };

  explicit DeviceContext(c10::DeviceIndex index) : index_(index) {}

  void record_locked(
      StreamContext& stream,
      const SignaturePtr& signature,
      c10::ArrayRef<TensorArg> args,
      c10::ArrayRef<c10::IValue> scalars,
      Lock& lock,
      Outputs& outputs);
  StreamContext& stream(c10::StreamId id);
  std::vector<StreamContext*> streams();
  void make_readable(c10::ArrayRef<TensorArg> args, const StreamContext& reader, Lock& lock);
  static void settle(LazyStorageImpl& storage, Lock& lock);
  static void allocate(LazyStorageImpl& storage, Lock& lock);
  static void make_available(LazyStorageImpl& storage, Lock& lock);
  // What `use` returns, called under the lock while the contents are there.
  template <typename Use>
  static auto use_available(LazyStorageImpl& storage, const Use& use);
  static void raise_failed_check(StreamContext& stream, Lock& lock);
  StreamContext* end_step(const LazyStorageImpl& storage, Lock& lock);
  static void drop_leaf(LazyStorageImpl& storage);
  static void drop_pending(LazyStorageImpl& storage);
  struct Submitted {
    Worker::Ticket ticket;
    size_t bytes;  // that it allocates
    bool overlaps; // nobody need wait
  };
  Submitted submit(StreamContext& stream, bool wake);
  void submit_and_wait(StreamContext& stream);
  Submitted start(StreamContext& stream);
  Submitted hand_over(StreamContext& stream);

  const c10::DeviceIndex index_;
  std::mutex mutex_;
  NumberCache numbers_; // has a lock of its own
  // Made when they are first used, and never destroyed.
  std::array<std::atomic<StreamContext*>, kStreamsPerDevice> streams_{};
};

// Returns when the contents are there; without Python's lock.
void wait(const FutureContents& data);

} // namespace lazyplug
