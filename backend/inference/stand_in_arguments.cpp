#include "backend/inference/stand_in_arguments.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <tuple>

#include "backend/execution/lazy_storage.h"
#include "lowering/calls/runtime_ops.h"

namespace lazyplug {
namespace {

// What kernels may look at of an address.
constexpr int64_t kAlignment = 64;

// In which the CPU computes, if arguments are of several dtypes: it casts those of others beforehand.
std::optional<c10::ScalarType> common_dtype(const Call& call) {
  const c10::OperatorHandle& op = call.op->handle();
  if (!op.hasTag(at::Tag::pointwise) ||
      !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) {
    return std::nullopt;
  }
  at::native::ResultTypeState state;
  for (const TensorArg& arg : call.tensors) {
    if (arg.tensor && !arg.out) {
      c10::ScalarType& common = arg.tensor->dim() > 0             ? state.dimResult
                                : arg.tensor->is_wrapped_number() ? state.wrappedResult
                                                                  : state.zeroResult;
      const auto dtype = c10::typeMetaToScalarType(arg.tensor->dtype());
      common = common == c10::ScalarType::Undefined ? dtype : c10::promoteTypes(common, dtype);
    }
  }
  return at::native::result_type(state);
}

int64_t first_byte(const Geometry& geometry) {
  return geometry.offset * static_cast<int64_t>(geometry.itemsize());
}

} // namespace

StandInArguments::StandInArguments(const Call& call, c10::DeviceType device, int fill)
    : call_(call), device_(device), fill_(fill), common_dtype_(common_dtype(call)) {
  place_tensors();
}

// Ranges that are apart come closer, but no nearer than what keeps them apart and
// aligned as they are. The storages of Meta tensors cost nothing.
void StandInArguments::place_tensors() {
  for (const TensorArg& arg : call_.tensors) {
    if (arg.storage && device_ == c10::kCPU) {
      const Geometry geometry = Geometry::of(*arg.tensor);
      const int64_t begin = first_byte(geometry);
      ranges_.push_back({arg.storage, begin, std::max(begin, static_cast<int64_t>(geometry.extent_bytes()))});
    }
  }
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
    return std::tie(a.storage, a.begin) < std::tie(b.storage, b.begin);
  });
  int64_t end = 0; // of all before, as far as they have come
  for (size_t i = 0; i < ranges_.size(); ++i) {
    Range& range = ranges_[i];
    const bool is_first = i == 0 || ranges_[i - 1].storage != range.storage;
    const int64_t moved = is_first ? 0 : ranges_[i - 1].moved;
    end = is_first ? 0 : end;
    const int64_t gap = range.begin - moved - end;
    range.moved = moved + (gap > 0 ? gap / kAlignment * kAlignment : 0);
    end = std::max(end, range.end - range.moved);
  }
}

const StandInArguments::Range& StandInArguments::range_of(const LazyStorageImpl& storage, int64_t begin) const {
  return *std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return range.storage == &storage && range.begin == begin;
  });
}

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
  if (is_cast(tensor)) {
    const auto strides = at::infer_dense_strides(tensor.sizes(), tensor.strides());
    return at::empty_strided(tensor.sizes(), strides, at::device(at::kMeta).dtype(tensor.dtype()));
  }
  const auto key = device_ == c10::kCPU ? c10::DispatchKey::CPU : c10::DispatchKey::Meta;
  Geometry geometry = Geometry::of(tensor);
  if (device_ == c10::kCPU) {
    geometry.offset -= range_of(storage, first_byte(geometry)).moved / static_cast<int64_t>(geometry.itemsize());
  }
  at::Tensor result = make_tensor(stand_in_storage(storage), geometry, key);
  if (fill_ != 0) {
    result.fill_(fill_);
  }
  return result;
}

// Whether strides change on the CPU before the kernel looks at them, as Meta kernels do not have it.
bool StandInArguments::is_cast(const c10::TensorImpl& tensor) const {
  return device_ == c10::kMeta && common_dtype_ && c10::typeMetaToScalarType(tensor.dtype()) != *common_dtype_ &&
         !tensor.is_non_overlapping_and_dense() &&
         std::none_of(call_.tensors.begin(), call_.tensors.end(), [&](const TensorArg& arg) {
           return arg.tensor == &tensor && arg.written;
         });
}

int64_t StandInArguments::covered_bytes(const LazyStorageImpl& storage) const {
  int64_t end = 0;
  for (const Range& range : ranges_) {
    end = range.storage == &storage ? std::max(end, range.end - range.moved) : end;
  }
  return end;
}

c10::Storage StandInArguments::make_storage(const LazyStorageImpl& storage) const {
  if (device_ == c10::kCPU) {
    // Zeros for kernels that run: valid indices, and cheap.
    return at::zeros({covered_bytes(storage)}, at::kByte).storage();
  }
  return {
      c10::Storage::use_byte_size_t(),
      static_cast<int64_t>(storage.nbytes()),
      c10::GetAllocator(device_),
      /*resizable=*/true};
}

c10::Storage StandInArguments::stand_in_storage(const LazyStorageImpl& storage) {
  for (const auto& [lazy, other] : storages_) {
    if (lazy == &storage) {
      return other;
    }
  }
  return storages_.emplace_back(&storage, make_storage(storage)).second;
}

namespace {

c10::IValue with_one_element(const c10::IValue& value, int fill, std::optional<c10::ScalarType> dtype) {
  if (value.isTensorList() || value.isOptionalTensorList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(with_one_element(element, fill, dtype));
    }
    return list;
  }
  if (!value.isTensor() || !value.toTensor().defined()) {
    return value;
  }
  const at::Tensor tensor = value.toTensor();
  if (!dtype && tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    return value; // it promotes otherwise than a tensor, and kernels may refuse it
  }
  const std::vector<int64_t> sizes(tensor.dim(), 1);
  return at::full(sizes, fill, tensor.options().device(at::kCPU).dtype(dtype.value_or(tensor.scalar_type())));
}

} // namespace

c10::Stack of_one_element(const c10::Stack& arguments, int fill, std::optional<c10::ScalarType> dtype) {
  c10::Stack result;
  for (const c10::IValue& argument : arguments) {
    result.push_back(with_one_element(argument, fill, dtype));
  }
  return result;
}

} // namespace lazyplug
