#include "backend/execution/predicted_call.h"

#include <bit>

#include "backend/execution/lazy_storage.h"
#include "common/config.h"
#include "device/generator.h"
#include "device/runtime.h"

namespace lazyplug {
namespace {

bool is_number(const c10::IValue& value, bool number) {
  return value.isBool() && value.toBool() == number;
}
bool is_number(const c10::IValue& value, int64_t number) {
  return value.isInt() && value.toInt() == number;
}
// Bit by bit: -0.0 is another number than 0.0.
bool is_number(const c10::IValue& value, double number) {
  return value.isDouble() && std::bit_cast<uint64_t>(value.toDouble()) == std::bit_cast<uint64_t>(number);
}

bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.isNone() || b.isNone()) {
    return a.isNone() && b.isNone();
  }
  if (a.isInt()) {
    return is_number(b, a.toInt());
  }
  if (a.isBool()) {
    return is_number(b, a.toBool());
  }
  if (a.isDouble()) {
    return is_number(b, a.toDouble());
  }
  if (a.isString()) {
    return b.isString() && a.toStringView() == b.toStringView();
  }
  if (a.isList() && b.isList()) {
    const auto first = a.toListRef();
    const auto second = b.toListRef();
    return std::equal(first.begin(), first.end(), second.begin(), second.end(), same_constant);
  }
  return false;
}

bool same_ints(c10::IntArrayRef values, const c10::IValue& constant) {
  if (!constant.isIntList()) {
    return false;
  }
  const auto expected = constant.toListRef();
  return std::equal(
      values.begin(),
      values.end(),
      expected.begin(),
      expected.end(),
      [](int64_t a, const c10::IValue& b) { return a == b.toInt(); });
}

bool same_type(const c10::IValue& a, const c10::IValue& b) {
  if (a.isList() && b.isList() && !a.isIntList() && !b.isIntList()) {
    const auto first = a.toListRef();
    const auto second = b.toListRef();
    return std::equal(first.begin(), first.end(), second.begin(), second.end(), same_type);
  }
  return (a.isDouble() && b.isDouble()) || (a.isInt() && b.isInt()) || (a.isBool() && b.isBool()) ||
         (a.isComplexDouble() && b.isComplexDouble()) || (a.isIntList() && b.isIntList());
}

bool is_view(const c10::TensorImpl& tensor, MatrixView view, const Geometry& expected) {
  if (tensor.dim() < 2 || tensor.numel() == 0 || expected.sizes.size() != 2 ||
      c10::typeMetaToScalarType(tensor.dtype()) != expected.dtype || tensor.is_conj() || tensor.is_neg() ||
      expected.has_bits()) {
    return false;
  }
  const int64_t columns = tensor.sizes().back();
  int64_t row_stride = tensor.strides()[0];
  if (tensor.dim() > 2) {
    if (!tensor.is_contiguous()) {
      return false;
    }
    row_stride = columns;
  }
  const size_t row = view == MatrixView::kRows ? 0 : 1;
  return expected.sizes[1 - row] == columns && expected.strides[1 - row] == tensor.strides().back() &&
         expected.strides[row] == row_stride && expected.sizes[row] * columns == tensor.numel();
}

} // namespace

bool PredictedCall::begin() const {
  return signature_.predictable && config().reuse_ir.get() &&
         !signature_.superseded.value.load(std::memory_order_relaxed) &&
         signature_.kernel_version == signature_.op->kernel_version() &&
         signature_.default_dtype == c10::get_default_dtype_as_scalartype();
}

bool PredictedCall::add(const c10::IValue& value) {
  return add(next(), value);
}

bool PredictedCall::add(const ArgBinding& binding, const c10::IValue& value) {
  switch (binding.kind) {
    case ArgBinding::Kind::kConstant:
      return value.isDevice() ? is_device(value.toDevice()) && binding.constant.isDevice()
                              : same_constant(value, binding.constant);
    case ArgBinding::Kind::kOperand:
      return value.isTensor() ? add_operand(value.toTensor()) : value.isNone() && add_operand(at::Tensor());
    case ArgBinding::Kind::kOperandList:
      return value.isList() && add_operands(value, binding.count);
    case ArgBinding::Kind::kScalar: {
      const ArgInfo& arg = signature_.op->args()[next_arg_ - 1];
      return arg.decision(value) == arg.decision(binding.constant) && add_scalar(value, binding.constant);
    }
    case ArgBinding::Kind::kGenerator:
      return add_generator(value);
  }
  return false;
}

bool PredictedCall::is_device(c10::Device device) const {
  return device.type() == device_.type() && (device.has_index() ? device.index() : current_device()) == device_.index();
}

bool PredictedCall::add(const at::Tensor& tensor) {
  return next().kind == ArgBinding::Kind::kOperand && add_operand(tensor);
}

bool PredictedCall::add(const at::Scalar& scalar) {
  if (scalar.isSymbolic()) {
    return add(c10::IValue(scalar));
  }
  switch (scalar.type()) {
    case c10::ScalarType::Bool:
      return add_number(scalar.toBool());
    case c10::ScalarType::Long:
      return add_number(scalar.toLong());
    case c10::ScalarType::Double:
      return add_number(scalar.toDouble());
    default:
      return add(c10::IValue(scalar));
  }
}

// Mostly it is the number that the signature was made for, and then there is nothing else to ask.
template <typename T>
bool PredictedCall::add_number(T value) {
  const ArgBinding& binding = next();
  if (!is_number(binding.constant, value)) {
    return add(binding, c10::IValue(value));
  }
  switch (binding.kind) {
    case ArgBinding::Kind::kConstant:
      return true;
    case ArgBinding::Kind::kScalar:
      scalars_.emplace_back(value);
      ranges_.add(static_cast<double>(value));
      return true;
    default:
      return false;
  }
}
template bool PredictedCall::add_number(bool value);
template bool PredictedCall::add_number(int64_t value);
template bool PredictedCall::add_number(double value);

bool PredictedCall::add(std::string_view value) {
  const ArgBinding& binding = next();
  return binding.kind == ArgBinding::Kind::kConstant && binding.constant.isString() &&
         binding.constant.toStringView() == value;
}

bool PredictedCall::add(c10::IntArrayRef values) {
  const ArgBinding& binding = next();
  if (binding.kind == ArgBinding::Kind::kScalar) {
    return add_scalar(values, binding.constant);
  }
  return binding.kind == ArgBinding::Kind::kConstant && same_ints(values, binding.constant);
}

bool PredictedCall::add(const at::ITensorListRef& tensors) {
  const ArgBinding& binding = next();
  return binding.kind == ArgBinding::Kind::kOperandList && tensors.size() == binding.count &&
         std::all_of(tensors.begin(), tensors.end(), [this](const at::Tensor& tensor) { return add_operand(tensor); });
}

bool PredictedCall::add_none() {
  return add(c10::IValue());
}

bool PredictedCall::add_bools(c10::ArrayRef<bool> values) {
  const ArgBinding& binding = next();
  if (binding.kind != ArgBinding::Kind::kConstant || !binding.constant.isBoolList()) {
    return false;
  }
  const auto expected = binding.constant.toListRef();
  return std::equal(values.begin(), values.end(), expected.begin(), expected.end(), [](bool a, const c10::IValue& b) {
    return a == b.toBool();
  });
}

bool PredictedCall::add(const at::Tensor& tensor, MatrixView view) {
  return next().kind == ArgBinding::Kind::kOperand && tensor.defined() && add_operand(tensor, view);
}

bool PredictedCall::add_operand(const at::Tensor& tensor, std::optional<MatrixView> view) {
  const size_t index = tensors_.size();
  const Geometry& expected = signature_.operands[index];
  if (!tensor.defined()) {
    tensors_.push_back({});
    return expected.dtype == c10::ScalarType::Undefined;
  }
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  auto* storage = LazyStorageImpl::of(&impl);
  const bool written = signature_.writes_operand(index);
  const bool on_cpu = !signature_.on_cpu.empty() && signature_.on_cpu[index];
  if (impl.key_set().has(c10::DispatchKey::Python)) {
    return false; // it would be asked for its device and its sizes, under the lock
  }
  if (on_cpu ? !impl.is_cpu() : !storage || &storage->context() != &context_) {
    return false;
  }
  if (on_cpu && impl.is_wrapped_number()) {
    ranges_.add(impl);
  }
  const bool is_expected = view ? is_view(impl, *view, expected) : expected.matches_apart_from_offset(impl);
  if (!is_expected || (view && on_cpu) ||
      (storage && !signature_.written.empty() && storages_.add(*storage, written))) {
    return false;
  }
  tensors_.emplace_back(impl, storage, written);
  tensors_.back().view = view ? &expected : nullptr;
  return true;
}

bool PredictedCall::add_operands(const c10::IValue& list, uint32_t count) {
  const auto elements = list.toListRef();
  return elements.size() == count && std::all_of(elements.begin(), elements.end(), [&](const c10::IValue& element) {
           return element.isTensor() ? add_operand(element.toTensor()) : element.isNone() && add_operand(at::Tensor());
         });
}

bool PredictedCall::add_scalar(const c10::IValue& scalar, const c10::IValue& example) {
  if (!same_type(scalar, example)) {
    return false;
  }
  scalars_.push_back(scalar);
  ranges_.add(scalar);
  return true;
}

bool PredictedCall::add_generator(const c10::IValue& value) {
  if (!value.isNone()) {
    generator_ = value.toGenerator();
    if (generator_->device() != device_) {
      return false; // an error
    }
  }
  seed_ = scalars_.size();
  scalars_.emplace_back();
  return true;
}

void PredictedCall::draw_seed() {
  if (seed_) {
    scalars_[*seed_] = static_cast<int64_t>(next_seed(generator_, device_.index()));
  }
}

} // namespace lazyplug
