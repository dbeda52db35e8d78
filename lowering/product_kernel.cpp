#include "lowering/product_kernel.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "kernels/product.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;

std::optional<kernels::Matrix> matrix_of(const Geometry& layout) {
  if (layout.sizes.size() != 2) {
    return std::nullopt;
  }
  return kernels::Matrix{layout.sizes[0], layout.sizes[1], layout.strides[0], layout.strides[1]};
}

// oneDNN may round the operands of larger products, if the program allows that.
constexpr int64_t kNeverRounded = 16 * 16 * 16; // multiplications

bool may_round_operands() {
  const auto precision = at::globalContext().float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  return precision == at::Float32Precision::BF16 || precision == at::Float32Precision::TF32;
}

class ProductKernel {
 public:
  ProductKernel(const OpInfo& op, const Geometry* bias, const Geometry& a, const Geometry& b, const Geometry& result)
      : op_(op), bias_(bias), a_(a), b_(b), result_(result) {}

  bool plan() {
    const auto a = matrix_of(a_);
    const auto b = matrix_of(b_);
    const auto result = matrix_of(result_);
    // Larger ones are not worth it; they are filled by several threads, too.
    const bool is_small = result && result_.numel() < at::internal::GRAIN_SIZE;
    if (!a || !b || !is_small || result->column_stride != 1 || result->row_stride != result->columns ||
        a_.dtype != result_.dtype || b_.dtype != result_.dtype || (bias_ && !plan_bias())) {
      return false;
    }
    is_large_ = result_.numel() * a->columns > kNeverRounded;
    auto product = kernels::Product::plan(result_.dtype, *a, *b, *result);
    if (product) {
      product_ = *product;
    }
    return product.has_value();
  }

  void operator()(c10::Stack& stack) const {
    auto operand = stack.end() - num_arguments();
    const bool adds = bias_ != nullptr;
    const auto* bias = adds ? (operand++)->unsafeToTensorImpl() : nullptr;
    const auto* a = (operand++)->unsafeToTensorImpl();
    const auto* b = (operand++)->unsafeToTensorImpl();
    const double beta = adds ? number(*operand++) : 0;
    const double alpha = adds ? number(*operand++) : 1;
    const bool is_expected = a_.matches_apart_from_offset(*a) && b_.matches_apart_from_offset(*b) &&
                             (!adds || (bias_->matches_apart_from_offset(*bias) && beta == 1 && !std::isnan(alpha)));
    if (!is_expected || (is_large_ && may_round_operands())) {
      return op_.call(stack);
    }
    at::Tensor result = at::detail::empty_cpu(result_.sizes, result_.dtype);
    void* memory = result.mutable_data_ptr();
    if (adds) {
      result_.dtype == at::kFloat ? copy_bias<float>(*bias, memory) : copy_bias<double>(*bias, memory);
    }
    product_.run(alpha, a->data(), b->data(), beta, memory);
    torch::jit::drop(stack, num_arguments());
    stack.emplace_back(std::move(result));
  }

 private:
  static double number(const c10::IValue& value) {
    return value.isDouble() ? value.toDouble()
           : value.isInt()  ? static_cast<double>(value.toInt())
                            : std::numeric_limits<double>::quiet_NaN();
  }

  std::ptrdiff_t num_arguments() const {
    return bias_ ? 5 : 2;
  }

  // As it is broadcast.
  bool plan_bias() {
    const size_t num_dims = bias_->sizes.size();
    for (size_t dim = 0; dim < num_dims && num_dims <= 2; ++dim) {
      const size_t place = dim + 2 - num_dims;
      if (bias_->sizes[dim] != 1 && bias_->sizes[dim] != result_.sizes[place]) {
        return false;
      }
      bias_strides_[place] = bias_->sizes[dim] == 1 ? 0 : bias_->strides[dim];
    }
    return num_dims <= 2 && bias_->dtype == result_.dtype;
  }

  template <typename T>
  void copy_bias(const c10::TensorImpl& bias, void* memory) const {
    const T* from = static_cast<const T*>(bias.data());
    T* to = static_cast<T*>(memory);
    const int64_t num_columns = result_.sizes[1];
    for (int64_t row = 0; row < result_.sizes[0]; ++row, from += bias_strides_[0], to += num_columns) {
      if (bias_strides_[1] == 1) {
        std::copy_n(from, num_columns, to);
        continue;
      }
      for (int64_t column = 0; column < num_columns; ++column) {
        to[column] = from[column * bias_strides_[1]];
      }
    }
  }

  const OpInfo& op_;
  const Geometry* bias_; // null: there is none
  const Geometry& a_;
  const Geometry& b_;
  const Geometry& result_;
  int64_t bias_strides_[2] = {0, 0};
  bool is_large_ = false;
  kernels::Product product_;
};

} // namespace

std::function<void(c10::Stack&)> product_kernel(const JitNode& node, const OpInfo& op, TypeGeometries& geometries) {
  const bool adds = op.name() == "aten::addmm";
  if (!adds && op.name() != "aten::mm") {
    return nullptr;
  }
  const auto layout_of = [&](size_t input) { return geometries.find(*node.input(input)->type()); };
  const Geometry* bias = adds ? layout_of(0) : nullptr;
  const Geometry* a = layout_of(adds ? 1 : 0);
  const Geometry* b = layout_of(adds ? 2 : 1);
  const Geometry* result = geometries.find(*node.output()->type());
  if (!a || !b || !result || (adds && !bias)) {
    return nullptr;
  }
  ProductKernel kernel(op, bias, *a, *b, *result);
  return kernel.plan() ? std::function<void(c10::Stack&)>(std::move(kernel)) : nullptr;
}

} // namespace lazyplug
