#include "lowering/calls/make_small_calls.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>

#include <cstring>

#include "kernels/product.h"
#include "lowering/calls/indexed_rows.h"
#include "lowering/calls/light_calls.h"
#include "lowering/calls/plain_tensors.h"
#include "lowering/calls/small_copy.h"
#include "lowering/calls/small_extreme.h"
#include "lowering/calls/small_out.h"
#include "lowering/calls/small_pointwise.h"
#include "lowering/calls/small_product.h"
#include "lowering/calls/small_rows.h"
#include "lowering/calls/small_sum.h"
#include "lowering/fusion/program_numbers.h"

namespace lazyplug {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;
using MemoryOf = SmallCalls::MemoryOf;

// ---- products ----

class SmallProducts final : public SmallCalls {
 public:
  explicit SmallProducts(const OpInfo& op) : op_(op), adds_(op.first_factor() == 1) {}

 private:
  at::Tensor compute(Arguments arguments, MemoryOf memory_of) const override {
    const auto* bias = adds_ ? plain_tensor(arguments[0]) : nullptr;
    const auto* a = plain_tensor(arguments[adds_ ? 1 : 0]);
    const auto* b = plain_tensor(arguments[adds_ ? 2 : 1]);
    const auto beta = adds_ ? real_number(arguments[3]) : 0;
    const auto alpha = adds_ ? real_number(arguments[4]) : 1;
    if (!a || !b || a->dim() != 2 || b->dim() != 2 || (adds_ && !bias) || !beta || !alpha) {
      return {};
    }
    const Geometry first = Geometry::of(*a);
    const Geometry second = Geometry::of(*b);
    const Geometry result = Geometry::contiguous(first.dtype, {first.sizes[0], second.sizes[1]});
    const auto added = adds_ ? std::optional(Geometry::of(*bias)) : std::nullopt;
    const auto product = SmallProduct::plan(added ? &*added : nullptr, first, second, result);
    if (!product || !product->goes(*alpha, *beta)) {
      return {};
    }
    const void* first_memory = memory_of(*a, /*written=*/false);
    const void* second_memory = memory_of(*b, /*written=*/false);
    const void* bias_memory = adds_ ? memory_of(*bias, /*written=*/false) : nullptr;
    const ThreadsOfCall threads(op_, arguments); // not before: what is waited for has its own number
    return first_memory && second_memory && (!adds_ || bias_memory)
               ? product->run(*alpha, first_memory, second_memory, bias_memory)
               : at::Tensor();
  }

  const OpInfo& op_;
  const bool adds_;
};

class SmallDots final : public SmallCalls {
  at::Tensor compute(Arguments arguments, MemoryOf memory_of) const override {
    const auto* a = plain_tensor(arguments[0]);
    const auto* b = plain_tensor(arguments[1]);
    if (!a || !b || a->dim() != 1 || b->dim() != 1 || a->dtype() != b->dtype() || a->sizes() != b->sizes() ||
        a->numel() == 0 || a->numel() > kMaxElements) {
      return {};
    }
    const auto dtype = c10::typeMetaToScalarType(a->dtype());
    if (!kernels::has_dot(dtype)) {
      return {};
    }
    const void* first = memory_of(*a, /*written=*/false);
    const void* second = memory_of(*b, /*written=*/false);
    if (!first || !second) {
      return {};
    }
    at::Tensor result = at::detail::empty_cpu({}, dtype);
    kernels::dot(dtype, a->numel(), first, a->strides()[0], second, b->strides()[0], result.mutable_data_ptr());
    return result;
  }
};

class SmallVectorProducts final : public SmallCalls {
 public:
  explicit SmallVectorProducts(const OpInfo& op) : op_(op) {}

 private:
  at::Tensor compute(Arguments arguments, MemoryOf memory_of) const override {
    const auto* a = plain_tensor(arguments[0]);
    const auto* x = plain_tensor(arguments[1]);
    if (!a || !x) {
      return {};
    }
    const auto product = plan_vector_product(Geometry::of(*a), Geometry::of(*x));
    const void* matrix = product ? memory_of(*a, /*written=*/false) : nullptr;
    const void* vector = product ? memory_of(*x, /*written=*/false) : nullptr;
    const ThreadsOfCall threads(op_, arguments);
    return matrix && vector ? run_vector_product(*product, matrix, vector) : at::Tensor();
  }

  const OpInfo& op_;
};

// ---- sums ----

class SmallSums final : public SmallCalls {
 public:
  explicit SmallSums(const SmallSum::Op& op) : op_(op) {}

 private:
  // (self, dtype), or after an order, if there is one, (dim, keepdim, dtype).
  at::Tensor compute(Arguments arguments, MemoryOf memory_of) const override {
    const auto* self = plain_tensor(arguments[0]);
    if (!self || self->numel() > kMaxElements || !arguments.back().isNone() || !SmallSum::makes_it(op_, arguments[1])) {
      return {};
    }
    const Geometry input = Geometry::of(*self);
    const auto sum = SmallSum::plan(op_.makes, input, op_.dims != 0 ? arguments[op_.dims] : c10::IValue());
    const void* memory = sum ? memory_of(*self, /*written=*/false) : nullptr;
    if (!memory) {
      return {};
    }
    const bool keeps_dims = op_.dims != 0 && arguments[op_.dims + 1].toBool();
    at::Tensor result = at::detail::empty_cpu(sum->result_sizes(input.sizes, keeps_dims), input.dtype);
    sum->run(memory, result.mutable_data_ptr());
    return result;
  }

  const SmallSum::Op& op_;
};

// ---- searches ----

class SmallSearches final : public SmallCalls {
 public:
  explicit SmallSearches(const SmallExtreme::Op& op) : op_(op) {}

 private:
  // (self), or (self, dim, keepdim).
  at::Tensor compute(Arguments arguments, MemoryOf memory_of) const override {
    const auto* self = plain_tensor(arguments[0]);
    if (!self || self->numel() > kMaxElements) {
      return {};
    }
    const Geometry input = Geometry::of(*self);
    const bool has_dim = arguments.size() > 1;
    const auto extreme = SmallExtreme::plan(op_, input, has_dim ? arguments[1] : c10::IValue());
    const void* memory = extreme ? memory_of(*self, /*written=*/false) : nullptr;
    return memory ? extreme->run(extreme->result_sizes(input.sizes, has_dim && arguments[2].toBool()), memory)[0]
                  : at::Tensor();
  }

  const SmallExtreme::Op& op_;
};

// ---- concatenations ----

class SmallConcatenations final : public SmallCalls {
 public:
  explicit SmallConcatenations(bool stacks) : stacks_(stacks) {}

 private:
  // Volumes whose channels are last may stay so.
  static constexpr int64_t kMaxDims = 3;

  // (tensors, dim)
  at::Tensor compute(Arguments arguments, MemoryOf memory_of) const override {
    const auto parts = arguments[0].toListRef();
    const auto* first = parts.empty() ? nullptr : plain_tensor(parts[0]);
    if (!first || (first->dim() == 0 && !stacks_) || first->dim() > kMaxDims) {
      return {};
    }
    const int64_t num_dims = first->dim() + (stacks_ ? 1 : 0);
    const int64_t dim = arguments[1].toInt() + (arguments[1].toInt() < 0 ? num_dims : 0);
    if (dim < 0 || dim >= num_dims) {
      return {};
    }
    int64_t length = 0;
    for (const auto& part : parts) {
      const auto* tensor = plain_tensor(part);
      if (!tensor || !fits(*tensor, *first, dim) || tensor->numel() > kMaxElements) {
        return {};
      }
      length += length_of(*tensor, dim);
    }
    c10::DimVector sizes(first->sizes());
    stacks_ ? void(sizes.insert(sizes.begin() + dim, length)) : void(sizes[dim] = length);
    const int64_t num_elements = c10::multiply_integers(sizes);
    if (num_elements == 0 || num_elements > kMaxElements) {
      return {};
    }
    at::Tensor result = at::detail::empty_cpu(sizes, c10::typeMetaToScalarType(first->dtype()));
    const int64_t num_rows = c10::multiply_integers(sizes.begin(), sizes.begin() + dim);
    const auto stride = static_cast<int64_t>(result.nbytes()) / num_rows;
    auto* to = static_cast<char*>(result.mutable_data_ptr());
    for (const auto& part : parts) {
      const auto* tensor = plain_tensor(part);
      const auto* from = static_cast<const char*>(memory_of(*tensor, /*written=*/false));
      if (!from) {
        return {};
      }
      const auto row = static_cast<int64_t>(tensor->numel() * tensor->itemsize()) / num_rows;
      for (int64_t i = 0; i < num_rows; ++i) {
        std::memcpy(to + i * stride, from + i * row, row);
      }
      to += row;
    }
    return result;
  }

  int64_t length_of(const c10::TensorImpl& part, int64_t dim) const {
    return stacks_ ? 1 : part.sizes()[dim];
  }

  bool fits(const c10::TensorImpl& part, const c10::TensorImpl& first, int64_t dim) const {
    if (part.dim() != first.dim() || part.dtype() != first.dtype() || !part.is_contiguous() || part.numel() == 0) {
      return false;
    }
    for (int64_t i = 0; i < part.dim(); ++i) {
      if (part.sizes()[i] != first.sizes()[i] && (stacks_ || i != dim)) {
        return false;
      }
    }
    return true;
  }

  const bool stacks_; // along a new dimension
};

// ---- numbers ----

class SmallNumbers final : public SmallCalls {
  // (number, dtype, layout, device, pin_memory)
  at::Tensor compute(Arguments arguments, MemoryOf /*memory_of*/) const override {
    const auto dtype = arguments[1].isNone() ? c10::get_default_dtype_as_scalartype() : arguments[1].toScalarType();
    const bool is_strided = arguments[2].isNone() || arguments[2].toLayout() == at::kStrided;
    const bool is_usual = c10::isFloatingType(dtype) || c10::isIntegralType(dtype, /*includeBool=*/true);
    return is_strided && is_usual ? at::detail::scalar_tensor_static(arguments[0].toScalar(), dtype, at::kCPU)
                                  : at::Tensor();
  }
};

// ---- indices ----

class SmallTakes final : public SmallCalls {
  // (self, indices)
  at::Tensor compute(Arguments arguments, MemoryOf memory_of) const override {
    const auto* self = plain_tensor(arguments[0]);
    return self ? take_rows(*self, arguments[1].toListRef(), memory_of, kMaxElements) : at::Tensor();
  }
};

class SmallPuts final : public SmallCalls {
  // (self, indices, values, accumulate)
  at::Tensor compute(Arguments arguments, MemoryOf memory_of) const override {
    const auto* self = plain_tensor(arguments[0]);
    const auto* values = plain_tensor(arguments[2]);
    const bool accumulates = arguments[3].toBool();
    const bool is_put = !accumulates && self && values && put_rows(*self, arguments[1].toListRef(), *values, memory_of);
    return is_put ? arguments[0].toTensor() : at::Tensor();
  }
};

} // namespace

std::unique_ptr<const SmallCalls> make_small_calls(const OpInfo& op) {
  if (auto returning = find_returning(op)) {
    auto calls = make_small_calls(*returning);
    return calls ? make_small_out(std::move(returning), std::move(calls)) : nullptr;
  }
  if (op.name() == "aten::mm" || op.name() == "aten::addmm") {
    return std::make_unique<SmallProducts>(op);
  }
  if (op.name() == "aten::mv") {
    return std::make_unique<SmallVectorProducts>(op);
  }
  if (op.name() == "aten::dot") {
    return std::make_unique<SmallDots>();
  }
  if (op.name() == "aten::cat" || op.name() == "aten::stack") {
    return std::make_unique<SmallConcatenations>(op.name() == "aten::stack");
  }
  if (op.name() == "aten::scalar_tensor") {
    return std::make_unique<SmallNumbers>();
  }
  if (op.name() == "aten::index.Tensor") {
    return std::make_unique<SmallTakes>();
  }
  if (op.name() == "aten::index_put_") {
    return std::make_unique<SmallPuts>();
  }
  if (auto copies = make_small_copy(op)) {
    return copies;
  }
  if (const auto* sum = SmallSum::find(op)) {
    return std::make_unique<SmallSums>(*sum);
  }
  if (const auto* search = SmallExtreme::find(op); search && op.num_returns() == 1) {
    return std::make_unique<SmallSearches>(*search);
  }
  auto rows = make_small_rows(op);
  return rows ? std::move(rows) : make_small_pointwise(op);
}

} // namespace lazyplug
