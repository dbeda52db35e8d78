#include "backend/inference/read_call.h"

#include <algorithm>
#include <limits>

#include "backend/execution/lazy_storage.h"
#include "backend/ops/call_kinds.h"
#include "backend/ops/non_strided_tensors.h"
#include "device/runtime.h"

namespace lazyplug {
namespace {

const char* find_obstacle(const c10::TensorImpl& tensor) {
  if (const char* kind = non_strided_kind(tensor)) {
    return kind;
  }
  if (tensor.has_symbolic_sizes_strides() || tensor.key_set().has(c10::DispatchKey::Python)) {
    return "a tensor subclass or symbolic sizes";
  }
  if (tensor.is_cpu()) {
    return tensor.is_conj() || tensor.is_neg() ? "a CPU tensor with lazy bits" : nullptr;
  }
  if (!LazyStorageImpl::of(&tensor)) {
    return "a tensor of another device, or without a storage";
  }
  return nullptr;
}

// No more than there can be.
int64_t add_sizes(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

bool asks_for_pinned(const ArgInfo& arg, const c10::IValue& value) {
  return value.isBool() && value.toBool() && arg.name == "pin_memory";
}

class CallReader {
 public:
  explicit CallReader(const OpInfo& op) {
    call_.op = &op;
    call_.kernel_version = op.kernel_version();
    call_.identity = hash_combine(call_.identity, reinterpret_cast<uintptr_t>(&op));
    // Factories and promotions depend on it.
    add_word(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  }

  Call read(c10::ArrayRef<c10::IValue> arguments) && {
    const OpInfo& op = *call_.op;
    const bool hidden_writes = op.makes_hidden_writes(arguments);
    for (size_t i = 0; i < arguments.size(); ++i) {
      read_argument(op.args()[i], arguments[i], op.writes_argument(i, hidden_writes));
    }
    check_cpu_tensors();
    if (!call_.obstacle && shape_depends_on_data(op, arguments)) {
      call_.obstacle = "output depends on data";
    }
    if (call_.any_shared_storage) {
      add_aliasing();
    }
    call_.key = hash_combine(call_.identity, call_.ranges.word());
    if (call_.kernel_version != 0) {
      call_.key = hash_combine(call_.key, call_.kernel_version);
    }
    return std::move(call_);
  }

 private:
  void add_word(uint64_t word) {
    call_.identity = hash_combine(call_.identity, word);
  }

  void read_argument(const ArgInfo& arg, const c10::IValue& value, bool written) {
    switch (arg.kind) {
      case ArgKind::kTensor:
        read_optional_tensor(value, written, arg.out);
        break;
      case ArgKind::kTensorList:
        read_tensor_list(value, written, arg.out);
        break;
      case ArgKind::kScalar:
        if (!arg.decisive.empty()) {
          add_word(arg.decision(value));
        }
        read_scalar(value);
        break;
      case ArgKind::kGenerator:
        read_generator(value);
        break;
      case ArgKind::kDevice:
        read_device(value);
        break;
      case ArgKind::kConstant:
        call_.asks_for_pinned |= asks_for_pinned(arg, value);
        read_constant(value);
        break;
    }
  }

  void read_optional_tensor(const c10::IValue& value, bool written, bool out) {
    if (value.isTensor()) {
      read_tensor(*value.unsafeToTensorImpl(), written, out);
    } else {
      add_undefined();
    }
  }

  void read_tensor_list(const c10::IValue& value, bool written, bool out) {
    if (value.isNone()) {
      add_word(kNoneTag);
      return;
    }
    const auto elements = value.toListRef();
    add_word(elements.size());
    for (const c10::IValue& element : elements) {
      read_optional_tensor(element, written, out);
    }
  }

  void add_undefined() {
    add_word(kNoneTag);
    call_.tensors.emplace_back();
  }

  void read_tensor(const c10::TensorImpl& tensor, bool written, bool out) {
    if (&tensor == c10::UndefinedTensorImpl::singleton()) {
      add_undefined();
      return;
    }
    if (const char* obstacle = find_obstacle(tensor)) {
      call_.obstacle = obstacle;
      return;
    }
    auto* storage = LazyStorageImpl::of(&tensor);
    if (storage) {
      read_device_index(tensor.device());
      add_geometry(tensor, /*on_cpu=*/false);
      call_.any_shared_storage |= call_.op->writes() && storages_.add(*storage, written);
    } else {
      TORCH_INTERNAL_ASSERT(tensor.device_type() == c10::kCPU);
      foreign_dims_ |= tensor.dim() > 0;
      foreign_written_ |= written;
      if (tensor.is_wrapped_number()) {
        call_.ranges.add(tensor);
      }
      add_geometry(tensor, /*on_cpu=*/true);
    }
    call_.tensors.emplace_back(tensor, storage, written, out);
    call_.any_written |= written;
    call_.num_elements = add_sizes(call_.num_elements, tensor.numel());
  }

  void read_device_index(c10::Device device) {
    if (call_.device >= 0 && call_.device != device.index()) {
      cross_devices(device_name(), device);
    }
    call_.device = device.index();
  }

  void add_geometry(const c10::TensorImpl& tensor, bool on_cpu) {
    const auto dtype = c10::typeMetaToScalarType(tensor.dtype());
    add_word(
        static_cast<uint64_t>(dtype) | uint64_t{tensor.is_conj()} << 8 | uint64_t{tensor.is_neg()} << 9 |
        uint64_t{tensor.is_wrapped_number()} << 10 | uint64_t{on_cpu} << 11 |
        static_cast<uint64_t>(tensor.dim()) << 16);
    for (int64_t size : tensor.sizes()) {
      add_word(static_cast<uint64_t>(size));
    }
    for (int64_t stride : tensor.strides()) {
      add_word(static_cast<uint64_t>(stride));
    }
  }

  // Kernels that write check whether their arguments overlap, so it matters
  // which of them share a storage, and how far from each other they lie.
  void add_aliasing() {
    for (size_t i = 0; i < call_.tensors.size(); ++i) {
      const auto* tensor = call_.tensors[i].tensor;
      const auto* storage = tensor ? LazyStorageImpl::of(tensor) : nullptr;
      for (size_t j = 0; storage && j < i; ++j) {
        const auto* other = call_.tensors[j].tensor;
        if (other && LazyStorageImpl::of(other) == storage) {
          add_word(i);
          add_word(j);
          add_word(static_cast<uint64_t>(first_byte(*tensor) - first_byte(*other)));
          add_word(tensor == other);
        }
      }
    }
  }

  static int64_t first_byte(const c10::TensorImpl& tensor) {
    return tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
  }

  // A number, or one of a list.
  static bool is_beyond_int64(const c10::IValue& value) {
    if (value.isList() && !value.isIntList()) {
      const auto elements = value.toListRef();
      return std::any_of(elements.begin(), elements.end(), is_beyond_int64);
    }
    return value.isUnsigned() && !value.isInt();
  }

  void read_scalar(const c10::IValue& value) {
    if (value.isNone()) {
      add_word(kNoneTag);
      return;
    }
    if (value.isSymInt() || value.isSymFloat() || value.isSymBool()) {
      call_.obstacle = "a symbolic number";
      return;
    }
    if (is_beyond_int64(value)) {
      call_.obstacle = "a number beyond int64";
      return;
    }
    if (value.isList() && !value.isIntList()) {
      const auto elements = value.toListRef();
      add_word(elements.size() << 3);
      std::for_each(elements.begin(), elements.end(), [this](const c10::IValue& element) { add_type(element); });
    } else {
      add_type(value);
    }
    call_.ranges.add(value);
    call_.scalars.push_back(value);
  }

  void add_type(const c10::IValue& scalar) {
    add_word(scalar.isDouble() ? 1 : scalar.isInt() ? 2 : scalar.isBool() ? 3 : scalar.isIntList() ? 5 : 4);
  }

  // The seed is drawn when the call is recorded: it is no part of the key.
  void read_generator(const c10::IValue& value) {
    if (call_.op->random()) {
      call_.seed_scalar = static_cast<int>(call_.scalars.size());
      call_.scalars.emplace_back(int64_t{0});
      call_.generator = value.toOptional<at::Generator>();
    }
  }

  void read_device(const c10::IValue& value) {
    if (value.isNone()) {
      add_word(kNoneTag);
      return;
    }
    const c10::Device device = value.toDevice();
    add_word(static_cast<uint64_t>(device.type()));
    if (device.type() != kLazyDevice) {
      call_.crosses_devices = true;
      return;
    }
    const int index = device.has_index() ? device.index() : current_device();
    call_.crosses_devices |= call_.device >= 0 && call_.device != index;
    call_.device = call_.device < 0 ? index : call_.device;
  }

  void read_constant(const c10::IValue& value) {
    if (value.isNone()) {
      add_word(kNoneTag);
    } else if (value.isInt()) {
      read_int(static_cast<uint64_t>(value.toInt()));
    } else if (value.isBool()) {
      add_word(value.toBool() ? kTrueTag : kFalseTag); // 1 and True may make a difference
    } else if (value.isDouble()) {
      call_.identity = hash_bytes(&value.payload, sizeof(double), call_.identity);
    } else if (value.isComplexDouble()) {
      const auto number = value.toComplexDouble();
      call_.identity = hash_bytes(&number, sizeof(number), call_.identity);
    } else if (value.isString()) {
      call_.identity = hash_bytes(value.toStringView(), call_.identity);
    } else if (value.isList()) {
      read_constant_list(value);
    } else {
      call_.obstacle = "a symbolic or opaque argument";
    }
  }

  // A number that looks like a tag is preceded by one of its own.
  void read_int(uint64_t value) {
    if (value - kNoneTag <= kIntTag - kNoneTag) {
      add_word(kIntTag);
    }
    add_word(value);
  }

  void read_constant_list(const c10::IValue& value) {
    const auto elements = value.toListRef();
    add_word(elements.size());
    for (const c10::IValue& element : elements) {
      read_constant(element);
    }
  }

  // Tensors of other devices: a 0-dim CPU tensor goes with any device, as long
  // as it is only read.
  void check_cpu_tensors() {
    if (call_.device < 0) {
      return;
    }
    if (foreign_written_ && !call_.op->is_foreach()) {
      raise_two_devices(c10::kCPU, device_name());
    }
    if (foreign_dims_ || foreign_written_) {
      cross_devices(device_name(), c10::kCPU);
    }
  }

  // A composite kernel knows better what it allows, and what it says otherwise.
  void cross_devices(c10::Device first, c10::Device second) {
    if (!call_.op->handle().hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
      raise_two_devices(first, second);
    }
    call_.crosses_devices = true;
  }

  c10::Device device_name() const {
    return {kLazyDevice, static_cast<c10::DeviceIndex>(call_.device)};
  }

  static constexpr uint64_t kNoneTag = 0xffff'ffff'ffff'0001;
  static constexpr uint64_t kFalseTag = 0xffff'ffff'ffff'0002;
  static constexpr uint64_t kTrueTag = 0xffff'ffff'ffff'0003;
  static constexpr uint64_t kIntTag = 0xffff'ffff'ffff'0004;

  Call call_;
  CallStorages storages_;
  bool foreign_dims_ = false;
  bool foreign_written_ = false;
};

bool is_mask(const c10::IValue& argument) {
  if (argument.isList()) {
    const auto elements = argument.toListRef();
    return std::any_of(elements.begin(), elements.end(), is_mask);
  }
  if (!argument.isTensor()) {
    return false;
  }
  const auto* tensor = argument.unsafeToTensorImpl();
  return tensor != c10::UndefinedTensorImpl::singleton() &&
         (tensor->dtype() == at::kBool || tensor->dtype() == at::kByte);
}

// What read_plain_call() asks of arguments.
class PlainArguments {
 public:
  explicit PlainArguments(const OpInfo& op) : kind_(op) {}

  bool add(const ArgInfo& arg, const c10::IValue& value) {
    switch (arg.kind) {
      case ArgKind::kTensor:
        return !arg.out && add_tensor(value);
      case ArgKind::kTensorList:
        return !arg.out && (value.isTensorList() || value.isOptionalTensorList()) && add_tensors(value.toListRef());
      case ArgKind::kScalar:
        return is_number(value);
      case ArgKind::kConstant:
        return (is_number(value) || value.isString() || value.isIntList()) && !asks_for_pinned(arg, value);
      case ArgKind::kDevice:
      case ArgKind::kGenerator:
        return false;
    }
    return false;
  }
  std::optional<PlainCall> take_call() {
    return device_ < 0 ? std::nullopt
                       : std::optional(
                             PlainCall{
                                 static_cast<c10::DeviceIndex>(device_),
                                 kind_.hash(),
                                 num_elements_,
                                 std::move(storages_)});
  }

 private:
  static bool is_number(const c10::IValue& value) {
    return value.isNone() || value.isInt() || value.isDouble() || value.isBool();
  }
  bool add_tensors(c10::ArrayRef<c10::IValue> tensors) {
    return std::all_of(tensors.begin(), tensors.end(), [&](const c10::IValue& tensor) { return add_tensor(tensor); });
  }
  // A number may be a CPU tensor.
  bool add_tensor(const c10::IValue& value) {
    if (!value.isNone() && !value.isTensor()) {
      return false;
    }
    const auto* tensor = value.isNone() ? c10::UndefinedTensorImpl::singleton() : value.unsafeToTensorImpl();
    if (tensor == c10::UndefinedTensorImpl::singleton()) {
      kind_.add(c10::ScalarType::Undefined, 0);
      return true;
    }
    if (find_obstacle(*tensor)) {
      return false;
    }
    kind_.add(c10::typeMetaToScalarType(tensor->dtype()), tensor->dim());
    num_elements_ = add_sizes(num_elements_, tensor->numel());
    if (tensor->is_cpu()) {
      return tensor->is_wrapped_number();
    }
    storages_.push_back(LazyStorageImpl::of(tensor)->id());
    const int index = tensor->device().index();
    const bool is_first = device_ < 0;
    device_ = is_first ? index : device_;
    return device_ == index;
  }

  int device_ = -1;
  KindOfCall kind_;
  int64_t num_elements_ = 0;
  StorageIds storages_;
};

} // namespace

void raise_two_devices(c10::Device first, c10::Device second) {
  TORCH_CHECK(
      false,
      "Expected all tensors to be on the same device, but found at least two devices, ",
      first,
      " and ",
      second,
      "!");
}

bool shape_depends_on_data(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments) {
  if (!op.shape_may_depend_on_data()) {
    return false;
  }
  const bool lacks_size = op.size_argument() >= 0 && arguments[op.size_argument()].isNone();
  return lacks_size || std::any_of(arguments.begin() + 1, arguments.end(), is_mask); // the first is what is indexed
}

Call read_call(const OpInfo& op, const c10::Stack& stack) {
  return read_arguments(op, torch::jit::last(stack, op.num_args()));
}

Call read_arguments(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments) {
  return CallReader(op).read(arguments);
}

std::optional<PlainCall> read_plain_call(const OpInfo& op, c10::ArrayRef<c10::IValue> arguments) {
  if (op.is_foreach() || op.random() || shape_depends_on_data(op, arguments)) {
    return std::nullopt;
  }
  PlainArguments plain(op);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!plain.add(op.args()[i], arguments[i])) {
      return std::nullopt;
    }
  }
  return plain.take_call();
}

} // namespace lazyplug
