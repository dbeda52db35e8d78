#include "lowering/nodes/product_kernel.h"

#include <ATen/core/Tensor.h>

#include <optional>

#include "lowering/calls/small_product.h"
#include "lowering/fusion/program_numbers.h"

namespace lazyplug {
namespace {

using JitNode = torch::jit::Node;

class ProductKernel {
 public:
  ProductKernel(
      const OpInfo& op,
      const SmallProduct& product,
      const Geometry* bias,
      const Geometry& a,
      const Geometry& b)
      : op_(op), product_(product), bias_(bias), a_(a), b_(b) {}

  void operator()(c10::Stack& stack) const {
    const std::ptrdiff_t num_arguments = bias_ ? 5 : 2;
    auto operand = stack.end() - num_arguments;
    const auto* bias = bias_ ? (operand++)->unsafeToTensorImpl() : nullptr;
    const auto* a = (operand++)->unsafeToTensorImpl();
    const auto* b = (operand++)->unsafeToTensorImpl();
    const auto beta = bias_ ? real_number(*operand++) : 0;
    const auto alpha = bias_ ? real_number(*operand++) : 1;
    const bool is_expected = a_.matches_apart_from_offset(*a) && b_.matches_apart_from_offset(*b) &&
                             (!bias_ || bias_->matches_apart_from_offset(*bias));
    if (!is_expected || !alpha || !beta || !product_.goes(*alpha, *beta)) {
      return op_.call(stack);
    }
    at::Tensor result = product_.run(*alpha, a->data(), b->data(), bias ? bias->data() : nullptr);
    torch::jit::drop(stack, num_arguments);
    stack.emplace_back(std::move(result));
  }

 private:
  const OpInfo& op_;
  const SmallProduct product_;
  const Geometry* bias_; // null: there is none
  const Geometry& a_;
  const Geometry& b_;
};

class VectorProductKernel {
 public:
  VectorProductKernel(const OpInfo& op, const kernels::VectorProduct& product, const Geometry& a, const Geometry& x)
      : op_(op), product_(product), a_(a), x_(x) {}

  void operator()(c10::Stack& stack) const {
    const auto operand = stack.end() - 2;
    const auto* a = operand->unsafeToTensorImpl();
    const auto* x = (operand + 1)->unsafeToTensorImpl();
    if (!a_.matches_apart_from_offset(*a) || !x_.matches_apart_from_offset(*x)) {
      return op_.call(stack);
    }
    at::Tensor result = run_vector_product(product_, a->data(), x->data());
    torch::jit::drop(stack, 2);
    stack.emplace_back(std::move(result));
  }

 private:
  const OpInfo& op_;
  const kernels::VectorProduct product_;
  const Geometry& a_;
  const Geometry& x_;
};

std::function<void(c10::Stack&)>
vector_product_kernel(const JitNode& node, const OpInfo& op, TypeGeometries& geometries) {
  const Geometry* a = geometries.find(*node.input(0)->type());
  const Geometry* x = geometries.find(*node.input(1)->type());
  const auto product = a && x ? plan_vector_product(*a, *x) : std::nullopt;
  return product ? std::function<void(c10::Stack&)>(VectorProductKernel(op, *product, *a, *x)) : nullptr;
}

} // namespace

std::function<void(c10::Stack&)> product_kernel(const JitNode& node, const OpInfo& op, TypeGeometries& geometries) {
  if (op.name() == "aten::mv") {
    return vector_product_kernel(node, op, geometries);
  }
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
  const auto product = SmallProduct::plan(bias, *a, *b, *result);
  return product ? std::function<void(c10::Stack&)>(ProductKernel(op, *product, bias, *a, *b)) : nullptr;
}

} // namespace lazyplug
