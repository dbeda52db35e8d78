#include "backend/stand_in_arguments.h"

#include "lowering/runtime_ops.h"

namespace lazyplug {

c10::Stack StandInArguments::make(const c10::Stack& stack) {
  c10::Stack result;
  const auto arguments = torch::jit::last(stack, call_.op->num_args());
  for (size_t i = 0; i < arguments.size(); ++i) {
    result.push_back(convert(call_.op->args()[i].kind, arguments[i]));
  }
  return result;
}

c10::IValue StandInArguments::convert(ArgKind kind, const c10::IValue& value) {
  switch (kind) {
    case ArgKind::kTensor:
      return convert_tensor(value);
    case ArgKind::kTensorList:
      return convert_list(value);
    case ArgKind::kGenerator:
      // Nobody's numbers may be used up.
      return call_.op->random() && device_ == c10::kCPU ? c10::IValue(seeded_generator(0)) : c10::IValue();
    case ArgKind::kDevice:
      return c10::Device(device_);
    default:
      return value;
  }
}

c10::IValue StandInArguments::convert_list(const c10::IValue& value) {
  if (value.isNone()) {
    return value;
  }
  const auto list = value.toList();
  c10::impl::GenericList result(list.elementType());
  for (const c10::IValue& element : value.toListRef()) {
    result.push_back(convert_tensor(element));
  }
  return result;
}

c10::IValue StandInArguments::convert_tensor(const c10::IValue& value) {
  const auto* tensor = call_.tensors[tensors_.size()].tensor;
  if (!tensor) {
    tensors_.emplace_back();
    return value;
  }
  tensors_.push_back(find_or_make(*tensor, value));
  return tensors_.back();
}

// A tensor that is passed twice is one tensor here too: ops tell the difference.
at::Tensor StandInArguments::find_or_make(const c10::TensorImpl& tensor, const c10::IValue& value) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (call_.tensors[i].tensor == &tensor) {
      return tensors_[i];
    }
  }
  auto* storage = LazyStorageImpl::of(&tensor);
  return storage ? stand_in(tensor, *storage) : value.toTensor();
}

at::Tensor StandInArguments::stand_in(const c10::TensorImpl& tensor, const LazyStorageImpl& storage) {
  const auto key = device_ == c10::kCPU ? c10::DispatchKey::CPU : c10::DispatchKey::Meta;
  at::Tensor result = make_tensor(stand_in_storage(storage), Geometry::of(tensor), key);
  if (fill_ != 0) {
    result.fill_(fill_);
  }
  return result;
}

c10::Storage StandInArguments::stand_in_storage(const LazyStorageImpl& storage) {
  for (const auto& [lazy, other] : storages_) {
    if (lazy == &storage) {
      return other;
    }
  }
  // Zeros for kernels that run: valid indices, and cheap.
  const auto nbytes = static_cast<int64_t>(storage.nbytes());
  c10::Storage other =
      device_ == c10::kCPU
          ? at::zeros({nbytes}, at::kByte).storage()
          : c10::Storage(c10::Storage::use_byte_size_t(), nbytes, c10::GetAllocator(device_), /*resizable=*/true);
  return storages_.emplace_back(&storage, std::move(other)).second;
}

} // namespace lazyplug
