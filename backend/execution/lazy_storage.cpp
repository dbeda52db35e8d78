#include "backend/execution/lazy_storage.h"

#include <c10/core/CPUAllocator.h>

#include <typeinfo>

#include "backend/execution/device_context.h"
#include "device/runtime.h"
#include "lowering/calls/runtime_ops.h"

namespace lazyplug {
namespace {

std::atomic<uint64_t> latest_id{0};

uint64_t next_id() {
  return latest_id.fetch_add(1, std::memory_order_relaxed) + 1;
}

// Neither autograd nor Python has seen it.
bool is_plain(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  return !impl->autograd_meta() && !impl->pyobj_slot()->load_pyobj();
}

void materialize_on_access(c10::StorageImpl* storage) {
  DeviceContext::materialize(*static_cast<LazyStorageImpl*>(storage));
}

c10::intrusive_ptr<c10::StorageImpl> create_storage(
    c10::StorageImpl::use_byte_size_t /*unused*/,
    c10::SymInt size_bytes,
    c10::DataPtr data,
    c10::Allocator* /*allocator*/,
    bool resizable) {
  const auto nbytes = static_cast<size_t>(size_bytes.guard_int(__FILE__, __LINE__));
  const auto device = data.get() ? data.device() : c10::Device(kLazyDevice, current_device());
  auto storage = c10::make_intrusive<LazyStorageImpl>(nbytes, device, resizable);
  if (data.get()) {
    data.unsafe_set_device(c10::Device(c10::kCPU));
    storage->context().adopt(
        *storage,
        c10::Storage(c10::Storage::use_byte_size_t(), nbytes, std::move(data), c10::GetCPUAllocator(), true));
  }
  return storage;
}

} // namespace

LazyStorageImpl::LazyStorageImpl(size_t nbytes, c10::Device device, bool resizable)
    : LazyStorageImpl(nbytes, DeviceContext::get(device.index()), resizable) {}

LazyStorageImpl::LazyStorageImpl(size_t nbytes, DeviceContext& context, bool resizable)
    : LazyStorageImpl(nbytes, c10::DataPtr(nullptr, context.device()), context, resizable) {
  set_materializer(materialize_on_access);
}

LazyStorageImpl::LazyStorageImpl(c10::Storage memory, DeviceContext& context)
    : LazyStorageImpl(
          memory.nbytes(),
          c10::DataPtr(memory.mutable_data(), context.device()),
          context,
          /*resizable=*/true) {
  memory_ = std::move(memory);
  state_ = State::kAvailable;
}

LazyStorageImpl::LazyStorageImpl(size_t nbytes, c10::DataPtr data, DeviceContext& context, bool resizable)
    : StorageImpl(
          use_byte_size_t(),
          c10::SymInt(static_cast<int64_t>(nbytes)),
          std::move(data),
          c10::GetAllocator(kLazyDevice),
          resizable),
      id_(next_id()),
      context_(&context) {}

uint64_t LazyStorageImpl::newest_id() {
  return latest_id.load(std::memory_order_relaxed);
}

LazyStorageImpl::~LazyStorageImpl() {
  context_->forget(*this);
}

void LazyStorageImpl::release_resources() {
  context_->forget(*this);
  memory_ = c10::Storage();
  leaf_.reset();
  data_ = nullptr;
  failure_ = nullptr;
  StorageImpl::release_resources();
}

LazyStorageImpl* LazyStorageImpl::of(const c10::TensorImpl* tensor) {
  return tensor->has_storage() ? of(tensor->unsafe_storage()) : nullptr;
}

LazyStorageImpl* LazyStorageImpl::of(c10::StorageImpl& storage) {
  // PyTorch makes plain storages on the device where it wraps foreign memory.
  return typeid(storage) == typeid(LazyStorageImpl) ? static_cast<LazyStorageImpl*>(&storage) : nullptr;
}

Discarded LazyStorageImpl::set_pending(StreamContext& stream, Value value, const Geometry* layout) {
  Discarded discarded = take_contents();
  stream_ = &stream;
  value_ = value;
  layout_ = layout;
  state_ = State::kPending;
  return discarded;
}

void LazyStorageImpl::set_submitted(FutureContentsPtr data, uint64_t step) {
  data_ = std::move(data);
  step_ = step;
  state_ = State::kSubmitted;
}

Discarded LazyStorageImpl::take_over_data() {
  Discarded discarded{{}, std::exchange(data_, nullptr), {}};
  const FutureContents& data = *discarded.data;
  if (data.memory) {
    set_available(data.memory);
  } else {
    state_ = State::kFailed;
  }
  discarded.failure = std::exchange(failure_, data.failure);
  return discarded;
}

Discarded LazyStorageImpl::set_failed(FailurePtr failure) {
  Discarded discarded = take_contents();
  state_ = State::kFailed;
  discarded.failure = std::exchange(failure_, std::move(failure));
  return discarded;
}

Discarded LazyStorageImpl::take_contents() {
  if (state_ == State::kAvailable) {
    set_data_ptr_noswap(c10::DataPtr(nullptr, device()));
    set_materializer(materialize_on_access);
  }
  return {
      std::exchange(memory_, c10::Storage()),
      std::exchange(data_, nullptr),
      {},
      std::exchange(leaf_, at::Tensor())};
}

Discarded LazyStorageImpl::set_available(c10::Storage memory) {
  Discarded discarded{
      std::exchange(memory_, std::move(memory)),
      std::exchange(data_, nullptr),
      {},
      std::exchange(leaf_, at::Tensor())};
  if (has_materializer()) {
    clear_materializer();
  }
  // A second pointer to the memory that `memory_` owns.
  set_data_ptr_noswap(c10::DataPtr(memory_.mutable_data(), device()));
  state_ = State::kAvailable;
  return discarded;
}

Discarded LazyStorageImpl::set_unallocated(size_t nbytes) {
  Discarded discarded = take_contents();
  discarded.failure = std::exchange(failure_, nullptr);
  set_nbytes(nbytes);
  epoch_ = 0;
  state_ = State::kUnallocated;
  return discarded;
}

template <typename Tensor>
LayoutPtr LazyStorageImpl::leaf_layout(const Tensor& tensor, Discarded& discarded) {
  if (!leaf_layout_ || leaf_nbytes_ != nbytes() || !leaf_layout_->geometry.matches(tensor)) {
    leaf_nbytes_ = nbytes();
    leaf_layout_ = c10::make_intrusive<SharedLayout>(Geometry::of_storage(tensor, leaf_nbytes_));
    discarded.leaf = std::exchange(leaf_, at::Tensor());
  }
  return leaf_layout_;
}
template LayoutPtr LazyStorageImpl::leaf_layout(const c10::TensorImpl& tensor, Discarded& discarded);
template LayoutPtr LazyStorageImpl::leaf_layout(const Geometry& tensor, Discarded& discarded);

at::Tensor LazyStorageImpl::leaf() {
  if (!leaf_.defined()) {
    leaf_ = make_cpu_tensor(memory_, leaf_layout_->geometry);
    return leaf_;
  }
  const bool is_untouched =
      leaf_.use_count() == 1 && is_plain(leaf_) && leaf_layout_->geometry.matches(*leaf_.unsafeGetTensorImpl());
  return is_untouched ? leaf_ : make_cpu_tensor(memory_, leaf_layout_->geometry);
}

at::Tensor LazyStorageImpl::part(const c10::TensorImpl& tensor) {
  // What has been read once may be read no more.
  if (std::exchange(was_read_, true) && !leaf_layout_) {
    Discarded nothing;
    leaf_layout(tensor, nothing);
  }
  const bool is_leaf = leaf_layout_ && leaf_nbytes_ == nbytes() && leaf_layout_->geometry.matches(tensor);
  return is_leaf ? leaf() : make_cpu_tensor(memory_, Geometry::of(tensor));
}

bool is_lazy(const at::TensorBase& tensor) {
  return tensor.defined() && LazyStorageImpl::of(tensor) != nullptr;
}

at::Tensor make_lazy_tensor(c10::Storage storage, const Geometry& geometry) {
  return make_tensor(std::move(storage), geometry, c10::DispatchKey::PrivateUse1);
}

c10::Storage alias_storage(const c10::Storage& owner, c10::Device device) {
  c10::DataPtr data(
      owner.mutable_data(),
      new c10::Storage(owner),
      [](void* context) { delete static_cast<c10::Storage*>(context); },
      device);
  return c10::Storage(
      c10::Storage::use_byte_size_t(),
      owner.nbytes(),
      std::move(data),
      /*allocator=*/nullptr,
      /*resizable=*/false);
}

void register_lazy_storage() {
  c10::SetStorageImplCreate(kLazyDevice, create_storage);
}

} // namespace lazyplug
