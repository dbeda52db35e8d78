#include "lowering/calls/random_fill.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/random_fill.h"
#include "lowering/calls/plain_tensors.h"
#include "lowering/calls/runtime_ops.h"

namespace lazyplug {
namespace {

using Kind = kernels::RandomFill::Kind;

// Whether PyTorch's kernel takes the numbers. A comparison with NaN does not hold.
bool is_probability(double p, double /*unused*/) {
  return p >= 0 && p <= 1;
}
bool is_range(double from, double to) {
  constexpr double kMax = 3.4028234663852886e38; // of float32
  return -kMax <= from && from <= to && to <= kMax && to - from <= kMax;
}
bool is_deviation(double mean, double deviation) {
  return mean == mean && deviation >= 0;
}

bool are_bounds(double first, double end) {
  constexpr double kMax = 0x1p52; // exact
  return -kMax <= first && first < end && end <= kMax && end - first <= 0x1p32;
}

struct FillOp {
  c10::Symbol aten;
  const char* overload;
  c10::Symbol symbol;
  Kind kind;
  size_t num_numbers;
  bool (*are_good)(double a, double b);

  size_t num_args() const {
    return num_numbers + 2;
  }
};

const std::array<FillOp, 4>& fill_ops() {
  const auto name = c10::Symbol::fromQualString;
  static const auto* ops = new std::array<FillOp, 4>{{
      {name("aten::bernoulli_"), "float", runtime_ops().bernoulli_, Kind::kBernoulli, 1, is_probability},
      {name("aten::uniform_"), "", runtime_ops().uniform_, Kind::kUniform, 2, is_range},
      {name("aten::normal_"), "", runtime_ops().normal_, Kind::kNormal, 2, is_deviation},
      {name("aten::random_"), "from", runtime_ops().random_, Kind::kIntegers, 2, are_bounds},
  }};
  return *ops;
}

template <typename Matches>
const FillOp* find_if(const Matches& matches) {
  const auto found = std::find_if(fill_ops().begin(), fill_ops().end(), matches);
  return found == fill_ops().end() ? nullptr : &*found;
}

const FillOp* find(const OpInfo& op) {
  return op.random()
             ? find_if([&](const FillOp& each) { return op.symbol() == each.aten && op.overload() == each.overload; })
             : nullptr;
}
const FillOp* find(c10::Symbol symbol) {
  return find_if([&](const FillOp& each) { return each.symbol == symbol; });
}

// None: what is beyond all bounds.
double number_of(const c10::IValue& value) {
  return value.isNone() ? std::numeric_limits<double>::infinity() : value.toScalar().toDouble();
}

// The last argument is the seed.
bool run(const FillOp& op, c10::Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.num_args());
  const at::Tensor& self = arguments[0].toTensor();
  const double a = number_of(arguments[1]);
  const double b = op.num_numbers > 1 ? number_of(arguments[2]) : 0;
  if (!plain_tensor(arguments[0]) || !self.is_cpu() || !kernels::can_fill(op.kind, self.scalar_type()) ||
      !op.are_good(a, b)) {
    stack.back() = seeded_generator(stack.back().toInt());
    return false;
  }
  // As it lies, or else in the order of its elements.
  const bool is_dense = self.is_non_overlapping_and_dense();
  const at::Tensor filled = is_dense ? self : at::empty(self.sizes(), self.options());
  kernels::fill(
      {op.kind, static_cast<uint64_t>(arguments.back().toInt()), a, b},
      filled.scalar_type(),
      filled.numel(),
      filled.mutable_data_ptr());
  if (!is_dense) {
    self.copy_(filled);
  }
  stack.resize(stack.size() - op.num_args() + 1);
  return true;
}

} // namespace

std::optional<c10::Symbol> random_fill_symbol(const OpInfo& op) {
  const FillOp* fill = find(op);
  return fill ? std::optional(fill->symbol) : std::nullopt;
}

c10::IValue seeded(const OpInfo& op, int64_t seed) {
  return find(op) ? c10::IValue(seed) : c10::IValue(seeded_generator(seed));
}

bool fill_randomly(const OpInfo& op, c10::Stack& stack) {
  const FillOp* fill = find(op);
  return fill && run(*fill, stack);
}

void fill_randomly(c10::Symbol symbol, c10::Stack& stack) {
  const FillOp& fill = *find(symbol);
  if (!run(fill, stack)) {
    c10::Dispatcher::singleton().findSchemaOrThrow(fill.aten.toQualString(), fill.overload).callBoxed(stack);
  }
}

namespace {

void fill_op(const c10::OperatorHandle& op, c10::Stack* stack) {
  fill_randomly(c10::Symbol::fromQualString(op.schema().name()), *stack);
}

TORCH_LIBRARY_FRAGMENT(lazyplug, m) {
  for (const char* schema :
       {"random_(Tensor(a!) self, int from, int? to, int seed) -> Tensor(a!)",
        "bernoulli_(Tensor(a!) self, float p, int seed) -> Tensor(a!)",
        "uniform_(Tensor(a!) self, float from, float to, int seed) -> Tensor(a!)",
        "normal_(Tensor(a!) self, float mean, float std, int seed) -> Tensor(a!)"}) {
    m.def(schema, torch::CppFunction::makeFromBoxedFunction<&fill_op>());
  }
}

} // namespace
} // namespace lazyplug
