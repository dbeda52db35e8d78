#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <atomic>

#include "backend/execution/future_contents.h"
#include "common/recycled.h"
#include "lowering/ir/trace.h"

namespace lazyplug {

class DeviceContext;
class StreamContext;

// What a storage held before a change. To be freed when no lock is held: the
// deleter of memory may be anybody's, and an error may be Python's.
struct Discarded {
  c10::Storage memory;
  FutureContentsPtr data;
  FailurePtr failure;
  at::Tensor leaf = {};
};

// The storage of a lazy tensor. The storage is lazy, not the tensor: tensors on
// it are stock TensorImpls, so views, aliasing and strides are PyTorch's own.
//
//   kUnallocated ──first use──▶ kPending ───the trace is cut───▶ kSubmitted
//        │                        ▲  ▲                               │ │
//        │ data_ptr()             │  └───── written: a new value ────┘ │ somebody
//        ▼                        │                                    ▼ looks
//   kAvailable ◀──────────────────┼──────────────────────── kAvailable | kFailed
//        └───── written by an op ─┘
//
// Reading the mutable data pointer of a storage that is not available makes it
// so first. A failed storage raises its error whenever it is read. If only a
// write to a storage failed, the storage keeps its old contents, and the error
// is raised by the next read, unless somebody has seen it by then.
//
// The threads that compute never touch a storage: they fill its FutureContents, and
// the next thread that uses the storage takes it over.
//
// Locking: all members are guarded by the mutex of the storage's DeviceContext,
// through which every change goes.
class LazyStorageImpl final : public c10::StorageImpl, public Recycled<LazyStorageImpl> {
 public:
  enum class State : uint8_t {
    kUnallocated, // never written: no memory and no value
    kPending,     // `value` in the current trace of `stream` will be its contents
    kSubmitted,   // `data` is, or will be, its contents
    kAvailable,   // `memory` holds its contents, and the data pointer is real
    kFailed,      // `failure` tells why its contents could not be computed
  };

  LazyStorageImpl(size_t nbytes, c10::Device device, bool resizable);
  LazyStorageImpl(size_t nbytes, DeviceContext& context, bool resizable);
  // With contents that are there already.
  LazyStorageImpl(c10::Storage memory, DeviceContext& context);
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
  // Unique in the process; the newer, the higher.
  uint64_t id() const {
    return id_;
  }
  // Of the newest one that there has been.
  static uint64_t newest_id();
  // How many views of it have been made, about: of threads that make some at once, one may be lost.
  uint32_t num_views() const {
    return num_views_.load(std::memory_order_relaxed);
  }
  void note_view() {
    num_views_.store(num_views() + 1, std::memory_order_relaxed);
  }

 private:
  friend class DeviceContext;
  friend class PendingSliceReader;
  friend class StreamContext;
  static constexpr uint32_t kNoSlot = static_cast<uint32_t>(-1);

  LazyStorageImpl(size_t nbytes, c10::DataPtr data, DeviceContext& context, bool resizable);
  Discarded set_pending(StreamContext& stream, Value value, const Geometry* layout);
  Discarded set_available(c10::Storage memory);
  Discarded set_unallocated(size_t nbytes);
  Discarded set_failed(FailurePtr failure);
  void set_submitted(FutureContentsPtr data, uint64_t step);
  // Of a submitted storage whose data is ready: makes it available or failed.
  Discarded take_over_data();
  Discarded take_contents();
  // The layout by which a trace reads the storage through the tensor, and the
  // memory of an available storage as a tensor that lies so. Those of the last
  // trace, if it read the storage in the same way, and nobody else holds the tensor.
  template <typename Tensor> // or its geometry
  LayoutPtr leaf_layout(const Tensor& tensor, Discarded& discarded);
  at::Tensor leaf();
  // Of an available storage: what the tensor is on the CPU. The leaf, if the last trace read the storage so, or if none
  // has and it has been read so before.
  at::Tensor part(const c10::TensorImpl& tensor);
  // Whether `value_` and `layout_` belong to the trace with this number. Each
  // trace of the process has its own.
  bool in_trace(uint64_t epoch) const {
    return epoch_ == epoch;
  }

  const uint64_t id_;
  DeviceContext* context_;
  State state_ = State::kUnallocated;
  // Place among the context's pending storages. Atomic because a dying storage
  // looks at it before it takes the lock.
  std::atomic<uint32_t> slot_ = kNoSlot;
  std::atomic<uint32_t> num_views_ = 0;
  // The current contents as a value of trace number `epoch_`: computed by it if
  // pending, a leaf of it if submitted or available.
  uint64_t epoch_ = 0;
  StreamContext* stream_ = nullptr; // that computes, or has computed, the contents
  uint64_t step_ = 0;               // of that stream, in which the contents were submitted; 0: never
  Value value_;
  const Geometry* layout_ = nullptr; // owned by that trace
  uint64_t offset_epoch_ = 0;        // of the last trace with a moving view of the storage,
  uint32_t latest_offset_ = 0;       // of which this is the latest: see StreamContext::OffsetScalar
  FutureContentsPtr data_;           // of a submitted storage
  c10::Storage memory_;              // of an available storage: a CPU storage
  FailurePtr failure_;               // of a failed storage, or of the last write to this one
  LayoutPtr leaf_layout_;            // of the last trace that read the storage,
  size_t leaf_nbytes_ = 0;           // when it had so many bytes
  at::Tensor leaf_;                  // `memory_`, with that layout
  bool was_read_ = false;            // by part()
};

// True for defined tensors with a lazy storage.
bool is_lazy(const at::TensorBase& tensor);

// A tensor on a lazy storage.
at::Tensor make_lazy_tensor(c10::Storage storage, const Geometry& geometry);

// A stock storage of `device` over the memory of `owner`, which it keeps alive.
c10::Storage alias_storage(const c10::Storage& owner, c10::Device device);

// Installs LazyStorageImpl as the storage of all tensors on the device.
void register_lazy_storage();

} // namespace lazyplug
