#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <exception>
#include <memory>

#include "lowering/ir.h"

namespace lazyplug {

class DeviceContext;

// What an op raised while it ran, shared by all storages that depend on it.
struct Failure {
  explicit Failure(std::exception_ptr raised) : error(std::move(raised)) {}
  std::exception_ptr error;
  std::atomic<bool> seen{false}; // it has been raised to somebody
};
using FailurePtr = std::shared_ptr<Failure>;

// The storage of a lazy tensor. The storage is lazy, not the tensor: tensors on
// it are stock TensorImpls, so views, aliasing and strides are PyTorch's own.
//
//   kUnallocated ──first use──▶ kPending ──executor takes the trace──▶ kRunning
//        │                        ▲  │                                   │
//        │ data_ptr()             │  └──────── written: a new value      │
//        ▼                        │                                      ▼
//   kAvailable ◀──────────────────┼──────────────────────── kAvailable | kFailed
//        └───── written by an op ─┘
//
// Reading the mutable data pointer of a storage that is not available makes it
// so first. A failed storage raises its error whenever it is read. If only a
// write to a storage failed, the storage keeps its old contents, and the error
// is raised by the next read, unless somebody has seen it by then.
//
// Locking: all members are guarded by the mutex of the storage's DeviceContext,
// through which every change goes.
class LazyStorageImpl final : public c10::StorageImpl {
 public:
  enum class State : uint8_t {
    kUnallocated, // never written: no memory and no value
    kPending,     // `value` in the device's current trace will be its contents
    kRunning,     // the executor is computing its contents
    kAvailable,   // `memory` holds its contents, and the data pointer is real
    kFailed,      // `failure` tells why its contents could not be computed
  };

  LazyStorageImpl(size_t nbytes, c10::Device device, bool resizable);
  ~LazyStorageImpl() override;

  void release_resources() override;

  // The lazy storage behind a tensor, or null if it has none.
  static LazyStorageImpl* of(const c10::TensorImpl* tensor);
  static LazyStorageImpl* of(const at::TensorBase& tensor) {
    return of(tensor.unsafeGetTensorImpl());
  }
  static LazyStorageImpl* of(const c10::Storage& storage) {
    return storage ? of(*storage.unsafeGetStorageImpl()) : nullptr;
  }
  static LazyStorageImpl* of(c10::StorageImpl& storage);

  DeviceContext& context() const {
    return *context_;
  }
  // Unique in the process.
  uint64_t id() const {
    return id_;
  }
  State state() const {
    return state_;
  }

 private:
  friend class DeviceContext;
  static constexpr uint32_t kNoSlot = static_cast<uint32_t>(-1);

  // These return the memory that the storage had, to be freed by the caller
  // when no lock is held: a deleter may be anybody's.
  c10::Storage set_pending(Value value, const Geometry* layout);
  c10::Storage set_available(c10::Storage memory);
  void set_unallocated(size_t nbytes);
  void set_failed(FailurePtr failure);
  c10::Storage take_memory();
  // Whether `value_` and `layout_` belong to the trace with this number.
  bool in_trace(uint64_t epoch) const {
    return epoch_ == epoch;
  }

  const uint64_t id_;
  DeviceContext* context_;
  State state_ = State::kUnallocated;
  // Place among the context's pending storages. Atomic because a dying storage
  // looks at it before it takes the lock.
  std::atomic<uint32_t> slot_ = kNoSlot;
  // The current contents as a value of trace number `epoch_`: computed by it if
  // pending, a leaf of it if available.
  uint64_t epoch_ = 0;
  Value value_;
  const Geometry* layout_ = nullptr; // owned by that trace
  c10::Storage memory_;              // a CPU storage
  FailurePtr failure_;               // of a failed storage, or of the last write to this one
};

// True for defined tensors with a lazy storage.
bool is_lazy(const at::TensorBase& tensor);

// A tensor on a lazy storage.
at::Tensor make_lazy_tensor(c10::Storage storage, const Geometry& geometry);

// Installs LazyStorageImpl as the storage of all tensors on the device.
void register_lazy_storage();

} // namespace lazyplug
