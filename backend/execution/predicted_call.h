#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Scalar.h>
#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/OptionalArrayRef.h>

#include <array>
#include <optional>
#include <string_view>

#include "backend/ops/number_ranges.h"
#include "backend/ops/tensor_arg.h"
#include "lowering/ir/signature.h"

namespace lazyplug {

class DeviceContext;

// How a call reads a tensor: as the matrix that view(-1, its last size) is, or that matrix transposed.
enum class MatrixView : uint8_t { kRows, kTransposedRows };

// Reads the arguments of a call, one after the other, against the signature
// that is predicted for it: the same call, or not? Compares where read_call()
// would hash, and so needs neither the key nor the caches.
//
// Careful rather than complete: a call that does not fit is read again in the
// usual way.
class PredictedCall {
 public:
  // `context` is that of `device`.
  PredictedCall(const Signature& signature, const DeviceContext& context, c10::Device device)
      : signature_(signature), context_(context), device_(device) {}

  // Whether the signature can be used for a prediction at all, now.
  bool begin() const;
  // Whether all arguments have been read, and their numbers are of the ranges
  // for which the signature was made.
  bool is_complete() const {
    return next_arg_ == signature_.args.size() && ranges_.word() == signature_.number_ranges;
  }

  // The next argument, boxed or not. False if it is not the predicted one.
  bool add(const c10::IValue& value);
  bool add(const at::Tensor& tensor);
  bool add(const at::Scalar& scalar);
  bool add(bool value) {
    return add_number(value);
  }
  bool add(int64_t value) {
    return add_number(value);
  }
  bool add(double value) {
    return add_number(value);
  }
  bool add(std::string_view value);
  bool add(c10::IntArrayRef values);
  bool add(const at::ITensorListRef& tensors);
  bool add(at::TensorList tensors) {
    return add(at::ITensorListRef(tensors));
  }
  bool add(c10::ScalarType value) {
    return add(static_cast<int64_t>(value));
  }
  bool add(c10::MemoryFormat value) {
    return add(static_cast<int64_t>(value));
  }
  bool add(c10::Layout value) {
    return add(static_cast<int64_t>(value));
  }
  bool add(c10::Device value) {
    return add(c10::IValue(value));
  }
  bool add(const c10::SymInt& value) {
    const auto number = value.maybe_as_int();
    return number && add(*number);
  }
  bool add(c10::SymIntArrayRef values) {
    const auto numbers = c10::asIntArrayRefSlowOpt(values);
    return numbers && add(*numbers);
  }
  bool add(at::OptionalIntArrayRef values) {
    return values ? add(*values) : add_none();
  }
  bool add(at::OptionalSymIntArrayRef values) {
    return values ? add(*values) : add_none();
  }
  template <size_t N>
  bool add(const std::array<bool, N>& values) {
    return add_bools(values);
  }
  bool add(const at::Generator& generator) {
    return add(c10::IValue(generator));
  }
  bool add(const c10::List<std::optional<at::Tensor>>& tensors) {
    return add(c10::IValue(tensors));
  }
  // A view of a tensor, without making it. False, too, if there is no such view.
  bool add(const at::Tensor& tensor, MatrixView view);
  template <typename T>
  bool add(const std::optional<T>& value) {
    return value ? add(*value) : add_none();
  }

  // Draws the seed of a random call, when it is sure to be made.
  void draw_seed();

  c10::ArrayRef<TensorArg> tensors() const {
    return tensors_;
  }
  c10::ArrayRef<c10::IValue> scalars() const {
    return scalars_;
  }

 private:
  const ArgBinding& next() {
    return signature_.args[next_arg_++];
  }
  bool add(const ArgBinding& binding, const c10::IValue& value);
  template <typename T>
  bool add_number(T value);
  bool add_none();
  bool add_bools(c10::ArrayRef<bool> values);
  bool is_device(c10::Device device) const;
  bool add_operand(const at::Tensor& tensor, std::optional<MatrixView> view = std::nullopt);
  bool add_operands(const c10::IValue& list, uint32_t count);
  bool add_scalar(const c10::IValue& scalar, const c10::IValue& example);
  bool add_generator(const c10::IValue& value);

  const Signature& signature_;
  const DeviceContext& context_;
  const c10::Device device_;
  size_t next_arg_ = 0;
  NumberRanges ranges_;
  c10::SmallVector<TensorArg, 8> tensors_;
  CallStorages storages_; // if the call writes
  c10::SmallVector<c10::IValue, 4> scalars_;
  std::optional<size_t> seed_; // which scalar
  std::optional<at::Generator> generator_;
};

} // namespace lazyplug
