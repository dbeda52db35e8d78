#include "backend/ops/float_numbers.h"

#include <c10/util/TypeCast.h>

namespace lazyplug {

bool takes_float_numbers(const Signature& signature) {
  const auto& operands = signature.operands;
  const auto is_float = [](const Geometry& operand) {
    return operand.dtype == c10::ScalarType::Float && !operand.wrapped_number;
  };
  const auto& op = signature.op->handle().operator_name();
  return converts_numbers(op.name, op.overload_name) && std::any_of(operands.begin(), operands.end(), is_float);
}

std::optional<float> as_float(const c10::TensorImpl& number) {
  switch (c10::typeMetaToScalarType(number.dtype())) {
    case c10::ScalarType::Double:
      return c10::convert<float>(*number.data_dtype_initialized<double>());
    case c10::ScalarType::Long:
      return c10::convert<float>(*number.data_dtype_initialized<int64_t>());
    default:
      return std::nullopt;
  }
}

} // namespace lazyplug
