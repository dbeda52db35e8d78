#include "backend/execution/pending_slice.h"

#include <unordered_map>

#include "backend/diagnostics/python_hooks.h"
#include "backend/execution/device_context.h"
#include "device/fork.h"
#include "lowering/calls/runtime_ops.h"

namespace lazyplug {
namespace {

// Enters a storage that the trace does not know into a slice.
Value add_leaf(Trace& trace, const LazyStorageImpl& storage, c10::Storage memory, const c10::TensorImpl& tensor) {
  Geometry layout = Geometry::of_storage(tensor, storage.nbytes());
  at::Tensor data = memory ? make_cpu_tensor(std::move(memory), layout) : at::Tensor();
  return trace.add_device_data(std::move(data), std::move(layout), {static_cast<int64_t>(storage.id())});
}

} // namespace

// Sees what the device and its storages hold; changes nothing of the trace.
class PendingSliceReader {
 public:
  explicit PendingSliceReader(DeviceContext& context) : context_(context) {}
  TraceSlice read(c10::ArrayRef<at::Tensor> tensors, bool with_data);

 private:
  StreamContext& stream_of(c10::ArrayRef<at::Tensor> tensors);
  static bool wait_for_data(c10::ArrayRef<TensorArg> args, StreamContext& reader, DeviceContext::Lock& lock);

  DeviceContext& context_;
};

// The stream on which the tensors are pending, or where they would be read.
StreamContext& PendingSliceReader::stream_of(c10::ArrayRef<at::Tensor> tensors) {
  check_not_bad_fork();
  StreamContext& current = context_.stream(current_stream_id(context_.index_));
  const DeviceContext::Lock lock(context_.mutex_);
  for (const at::Tensor& tensor : tensors) {
    auto* storage = LazyStorageImpl::of(tensor);
    if (storage->state_ == LazyStorageImpl::State::kPending) {
      return *storage->stream_;
    }
  }
  return current;
}

// Of what has been handed over. Returns whether the lock was free meanwhile, so that there may be other data by now.
bool PendingSliceReader::wait_for_data(
    c10::ArrayRef<TensorArg> args,
    StreamContext& reader,
    DeviceContext::Lock& lock) {
  std::vector<FutureContentsPtr> awaited;
  for (const TensorArg& arg : args) {
    if (arg.storage->state_ == LazyStorageImpl::State::kSubmitted) {
      awaited.push_back(arg.storage->data_);
    }
  }
  for (const PendingLeaf& leaf : reader.pending_leaves()) {
    if (!leaf.data->is_ready()) {
      awaited.push_back(leaf.data);
    }
  }
  if (awaited.empty()) {
    return false;
  }
  lock.unlock();
  for (const FutureContentsPtr& data : awaited) {
    wait(*data);
  }
  awaited.clear(); // what dies here must not hold the lock
  lock.lock();
  return true;
}

TraceSlice PendingSliceReader::read(c10::ArrayRef<at::Tensor> tensors, bool with_data) {
  std::vector<TensorArg> args;
  for (const at::Tensor& tensor : tensors) {
    args.emplace_back(*tensor.unsafeGetTensorImpl(), LazyStorageImpl::of(tensor), /*written=*/false);
  }
  StreamContext& reader = stream_of(tensors);
  DeviceContext::Lock lock(context_.mutex_);
  do {
    context_.make_readable(args, reader, lock);
  } while (with_data && wait_for_data(args, reader, lock));
  if (with_data) {
    if (const FailurePtr failure = reader.settle_leaves(lock.aftermath)) {
      lock.unlock();
      rethrow(failure->error);
    }
  }
  std::unordered_map<LazyStorageImpl*, Value> values;
  std::vector<LazyStorageImpl*> known;
  std::vector<Value> wanted;
  for (const at::Tensor& tensor : tensors) {
    auto* storage = LazyStorageImpl::of(tensor);
    if (storage->in_trace(reader.epoch()) && values.emplace(storage, storage->value_).second) {
      known.push_back(storage);
      wanted.push_back(storage->value_);
    }
  }
  TraceSlice slice = extract(reader.trace(), wanted);
  for (size_t i = 0; i < known.size(); ++i) {
    values[known[i]] = slice.roots[i];
  }
  slice.roots.clear();
  for (const at::Tensor& tensor : tensors) {
    auto* storage = LazyStorageImpl::of(tensor);
    auto& value = values[storage];
    if (!value.defined()) {
      const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
      value = storage->state_ == LazyStorageImpl::State::kUnallocated
                  ? slice.trace.add_empty(Geometry::of_storage(impl, storage->nbytes()))
                  : add_leaf(slice.trace, *storage, storage->memory_, impl);
    }
    add_root(slice, value, Geometry::of(*tensor.unsafeGetTensorImpl()));
  }
  return slice;
}

TraceSlice pending_slice(DeviceContext& context, c10::ArrayRef<at::Tensor> tensors, bool with_data) {
  return PendingSliceReader(context).read(tensors, with_data);
}

} // namespace lazyplug
