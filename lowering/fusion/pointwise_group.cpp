#include "lowering/fusion/pointwise_group.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/pointwise.h"
#include "kernels/sums.h"
#include "lowering/fusion/fusible_calls.h"
#include "lowering/fusion/layer_norm.h"
#include "lowering/fusion/narrow_floats.h"
#include "lowering/fusion/program_numbers.h"

namespace lazyplug {
namespace {

using kernels::Opcode;

// As comparisons of the ones with the others see them, that is, rounded perhaps.
bool holds_truths_and_integers(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Float || dtype == c10::ScalarType::Double || dtype == c10::ScalarType::Long;
}

} // namespace

const PointwiseOp* PointwiseGroup::find_row(const GraphNode& node) const {
  const PointwiseOp* function = takes_functions_ ? function_of(node) : nullptr;
  return function ? function : find_pointwise_op(node.op(), node.signature()->args);
}

bool PointwiseGroup::add(GraphNode& node, kernels::Window window) {
  const bool joins = is_join(node);
  const PointwiseOp* op = node.is_call() && !joins ? find_row(node) : nullptr;
  if ((!op && !joins) || nodes_.size() == kMaxNodes) {
    return false;
  }
  window_ = window;
  const size_t num_steps = steps_.size();
  const size_t num_inputs = inputs_.size();
  const size_t num_numbers = numbers_.size();
  const size_t num_literals = literals_.size();
  const bool had_rows = has_rows_;
  if (joins ? add_join(node) : add_call(node, *op)) {
    nodes_.push_back(&node);
    windows_.push_back(window);
    if (fits()) {
      has_functions_ |= op && op->is_function();
      return true;
    }
    nodes_.pop_back();
    windows_.pop_back();
    steps_of_.pop_back();
  }
  steps_.resize(num_steps);
  for (GroupStep& step : steps_) {
    step.spread = step.spread < num_steps ? step.spread : GroupStep::kNone;
  }
  inputs_.resize(num_inputs);
  numbers_.erase(numbers_.begin() + static_cast<int64_t>(num_numbers), numbers_.end());
  literals_.resize(num_literals);
  has_rows_ = had_rows;
  return false;
}

bool PointwiseGroup::begin_join(GraphNode& join, c10::ArrayRef<Part> parts) {
  layout_ = join.layout_of(0);
  const auto computing = kernels::computing_dtype(layout_.dtype);
  if (!computing || !kernels::computes_floats_of(*computing)) {
    return false;
  }
  layout_.dtype = *computing;
  return std::all_of(parts.begin(), parts.end(), [&](const Part& part) { return add(*part.node, part.window); }) &&
         add(join);
}

bool PointwiseGroup::is_join(const GraphNode& node) {
  static const auto cat = c10::Symbol::fromQualString("aten::cat");
  if (!node.is_call() || node.op().symbol() != cat || node.op().writes()) {
    return false;
  }
  const auto& args = node.signature()->args;
  const auto num_dims = static_cast<int64_t>(node.layout_of(0).sizes.size());
  if (args.size() != 2 || args[0].kind != ArgBinding::Kind::kOperandList ||
      args[1].kind != ArgBinding::Kind::kConstant || !args[1].constant.isInt() || num_dims == 0) {
    return false;
  }
  const int64_t dim = args[1].constant.toInt();
  return dim == -1 || dim == num_dims - 1;
}

// Rows must fit into a tile.
bool PointwiseGroup::fits() const {
  if (inputs_.size() + steps_.size() > kernels::kMaxSlots ||
      numbers_.size() + literals_.size() > std::numeric_limits<uint8_t>::max()) {
    return false;
  }
  if (!has_rows_) {
    return true;
  }
  constexpr size_t kAlignment = 64;
  const size_t row_bytes = static_cast<size_t>(layout_.sizes.back()) * c10::elementSize(layout_.dtype);
  const size_t slot_bytes = (row_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const kernels::Program made = program(outputs());
  const size_t num_wholes = made.num_whole_slots();
  return num_wholes * slot_bytes + (made.num_slots - num_wholes) * kAlignment <= kernels::kTileBytes;
}

uint32_t PointwiseGroup::add_step(GroupStep step) {
  steps_.push_back(std::move(step));
  return static_cast<uint32_t>(steps_.size() - 1);
}

// For all elements of the row, if it is one for each.
GroupStep::Source PointwiseGroup::spread(GroupStep::Source source) {
  if (source.is_input || !steps_[source.index].makes_one()) {
    return source;
  }
  if (steps_[source.index].spread == GroupStep::kNone) {
    const uint32_t spread = add_step({Opcode::kSpread, {source}, {}});
    steps_[source.index].spread = spread;
  }
  return {false, steps_[source.index].spread};
}

bool PointwiseGroup::add_call(GraphNode& node, const PointwiseOp& op) {
  const Signature& signature = *node.signature();
  const size_t mask = op.kind == PointwiseOp::Kind::kMasked ? 1 : 0;
  const bool has_odd_mask = op.opcode == Opcode::kWhere && signature.operands[mask].dtype != c10::ScalarType::Bool;
  if (signature.args.size() != std::strlen(op.args) || has_odd_mask || !has_layout(node, op)) {
    return false;
  }
  GroupStep step{op.opcode, {}, {}};
  step.is_for_row = is_for_row_;
  step.opcode = opcode_of(op);
  if (op.kind == PointwiseOp::Kind::kTotals) {
    step.opcode = Opcode::kCopy;
    step.total = op.opcode == Opcode::kRowMean ? kernels::Total::kMean : kernels::Total::kSum;
  }
  size_t operand = 0;
  size_t scalar = 0;
  for (size_t i = 0; i < signature.args.size(); ++i) {
    const ArgBinding& arg = signature.args[i];
    const bool is_number = arg.kind == ArgBinding::Kind::kScalar;
    if (op.args[i] == 'c') {
      if (!add_correction(is_number ? graph_->scalars()[node.scalars()[scalar++]] : arg.constant, step)) {
        return false;
      }
      continue;
    }
    const bool is_bound = arg.kind == ArgBinding::Kind::kOperand ? add_source(node.operand(operand++), op.args[i], step)
                          : is_number ? add_number(node.scalars()[scalar++], op.args[i], step)
                                      : arg.kind == ArgBinding::Kind::kConstant &&
                                            is_expected(arg.constant, op.args[i], call_dtype_, layout_.sizes);
    if (!is_bound) {
      return false;
    }
  }
  if (op.kind == PointwiseOp::Kind::kSwapped) {
    std::swap(step.sources[0], step.sources[1]);
  }
  if (op.kind == PointwiseOp::Kind::kMasked) {
    std::rotate(step.sources.begin(), step.sources.begin() + 1, step.sources.end());
  }
  if (!can_compute(op, step.opcode) || rounds_by_place(step)) {
    return false;
  }
  has_rows_ |= kernels::is_about_rows(step.opcode);
  op.is_layer_norm() ? add_layer_norm(std::move(step)) : steps_of_.push_back({add_narrowed(std::move(step))});
  return true;
}

// What is beside an operand's columns comes from the others.
bool PointwiseGroup::add_join(const GraphNode& node) {
  const Geometry& result = node.layout_of(0);
  call_dtype_ = result.dtype;
  is_for_row_ = is_in_place_ = false;
  // Without a layout, see begin_join(), there are no rows.
  if (node.num_operands() < 2 || result.has_bits() || result.offset != 0 || !has_rows_of(kMinRow) ||
      result.sizes != layout_.sizes || result.strides != layout_.strides || is_of_integers() ||
      kernels::computing_dtype(result.dtype) != layout_.dtype) {
    return false;
  }
  std::optional<GroupStep::Source> joined;
  int64_t begin = 0;
  for (size_t i = 0; i < node.num_operands(); ++i) {
    const GraphUse& operand = node.operand(i);
    if (!operand.value().defined() || seen_by(operand).dtype != result.dtype ||
        seen_by(operand).sizes.size() != result.sizes.size() || seen_by(operand).sizes.back() < kMinWindow) {
      return false;
    }
    window_ = {begin, begin + seen_by(operand).sizes.back()};
    const auto source = find_source(operand);
    if (!source) {
      return false;
    }
    if (joined) {
      GroupStep step{Opcode::kJoin, {*joined, *source}, {}};
      add_literal(begin, step);
      joined = GroupStep::Source{false, add_step(std::move(step))};
    } else {
      joined = source;
    }
    begin = window_.end;
  }
  window_ = {};
  has_rows_ = true;
  steps_of_.push_back({joined->index});
  return true;
}

// Of the call, in its dtype; another one for each exponent.
Opcode PointwiseGroup::opcode_of(const PointwiseOp& op) const {
  if (op.kind == PointwiseOp::Kind::kBits && is_of_integers() && call_dtype_ != c10::ScalarType::Bool) {
    return bitwise_opcode(op);
  }
  return opcode_for(call_dtype_, op.opcode);
}

bool PointwiseGroup::can_compute(const PointwiseOp& op, Opcode opcode) const {
  if (is_of_integers()) {
    return kernels::is_for_integers(opcode);
  }
  return op.kind != PointwiseOp::Kind::kIntegers && !(kernels::is_narrow_float(call_dtype_) && rounds_between(opcode));
}

// What the step makes, in the dtype of its call.
uint32_t PointwiseGroup::add_narrowed(GroupStep step) {
  const bool is_truth = kernels::is_comparison(step.opcode) || step.opcode == Opcode::kNot;
  const bool is_narrow = kernels::is_narrow_float(call_dtype_) && !is_truth && !needs_no_rounding(step.opcode);
  const uint32_t wide = add_step(std::move(step));
  if (!is_narrow) {
    return wide;
  }
  const uint32_t result = add_rounding({false, wide});
  steps_[wide].place_of = result;
  return result;
}

uint32_t PointwiseGroup::add_rounding(GroupStep::Source source) {
  GroupStep rounds{narrowing(call_dtype_), {source}, {}};
  rounds.is_for_row = is_for_row_;
  return add_step(std::move(rounds));
}

// Its sources are the input, and the weight and the bias if there are such. All results depend on all of them.
void PointwiseGroup::add_layer_norm(GroupStep step) {
  const auto& given = step.sources;
  const auto parameter = [&](size_t i) { return given.size() > i ? std::optional(given[i]) : std::nullopt; };
  const auto add = [&](Opcode opcode, std::initializer_list<GroupStep::Source> sources) {
    const bool takes_number = kernels::takes_number(opcode);
    GroupStep next{opcode, sources, {given.begin(), given.end()}};
    next.number = takes_number ? step.number : uint8_t{0};
    next.num_numbers = takes_number ? 1 : 0;
    return GroupStep::Source{false, add_step(std::move(next))};
  };
  const auto results = lazyplug::add_layer_norm(given[0], parameter(1), parameter(2), add);
  auto& steps = steps_of_.emplace_back();
  for (const GroupStep::Source& result : results) {
    steps.push_back(result.index);
  }
  if (given.size() > 1) {
    steps_[steps[0] - 1].place_of = steps[0];
  }
}

bool PointwiseGroup::add_source(const GraphUse& operand, char arg, GroupStep& step) {
  if (arg == 'o' && !operand.value().defined()) {
    return true;
  }
  const bool is_tensor = arg == '.' || ((arg == 't' || arg == 'o') && reads_its_dtype(operand, step));
  auto source = is_tensor ? find_source(operand) : std::nullopt;
  if (source && source->is_input && arg == 't' && loses_bits_of_nan(operand, step)) {
    return false;
  }
  if (source) {
    if (kernels::is_narrow_float(call_dtype_) && seen_by(operand).wrapped_number && casts_number(step)) {
      source = GroupStep::Source{false, add_rounding(*source)};
    }
    arg == '.' ? step.unread.push_back(*source) : step.sources.push_back(*source);
  }
  return source.has_value();
}

// Whether the operand has the dtype of the call, or what it holds is the same in that; of wider ones, the CPU's kernels
// cast some operands before they compute, and others not.
bool PointwiseGroup::reads_its_dtype(const GraphUse& operand, const GroupStep& step) const {
  if (!operand.value().defined()) {
    return false;
  }
  const c10::ScalarType dtype = seen_by(operand).dtype;
  if (is_of_integers()) {
    return c10::isIntegralType(dtype, /*includeBool=*/true);
  }
  return !kernels::is_narrow_float(call_dtype_) || dtype == call_dtype_ || dtype == c10::ScalarType::Bool ||
         step.opcode == Opcode::kCopy || seen_by(operand).wrapped_number;
}

// A copy keeps all bits. Processors make quiet NaNs of float16's other ones when they widen them.
bool PointwiseGroup::loses_bits_of_nan(const GraphUse& operand, const GroupStep& step) const {
  constexpr auto kHalf = c10::ScalarType::Half;
  return step.opcode == Opcode::kCopy && call_dtype_ == kHalf && seen_by(operand).dtype == kHalf;
}

// Whether the CPU's kernels cast a number, the next source, to the dtype of the call before they compute.
bool PointwiseGroup::casts_number(const GroupStep& step) {
  const bool is_factor = step.opcode == Opcode::kMul || step.opcode == Opcode::kDiv;
  return !is_factor || step.sources.empty();
}

// The step's own number, or its next input, which another step makes.
bool PointwiseGroup::add_number(uint32_t scalar, char arg, GroupStep& step) {
  if (arg == 'p') {
    const auto opcode = power_opcode(graph_->scalars()[scalar]);
    step.opcode = opcode.value_or(step.opcode);
    return opcode.has_value();
  }
  const c10::IValue& value = graph_->scalars()[scalar];
  if (arg == 'e') {
    return real_number(value) == 2;
  }
  // Truths are compared with a number in its own dtype, to which that of the group may not be equal: 257 is 1 as uint8.
  const bool is_beside_truths = arg == 'n' && call_dtype_ == c10::ScalarType::Bool;
  if (is_beside_truths && !(value.isInt() && holds_truths_and_integers(layout_.dtype))) {
    return false;
  }
  const auto place = static_cast<uint8_t>(numbers_.size());
  if ((arg != 'n' && arg != 's') || !real_number(value) || (is_of_integers() && !value.isInt()) ||
      place == std::numeric_limits<uint8_t>::max()) {
    return false;
  }
  // The CPU's kernels compare with bounds of their own dtype: zeros may have another sign than such a bound's.
  const bool is_bound =
      step.opcode == Opcode::kClamp || step.opcode == Opcode::kClampMin || step.opcode == Opcode::kClampMax;
  const bool is_rounded = arg == 's' && is_bound && kernels::is_narrow_float(call_dtype_);
  numbers_.push_back({scalar, is_rounded ? call_dtype_ : c10::ScalarType::Undefined});
  if (arg == 's') {
    step.number = step.num_numbers++ == 0 ? place : step.number;
  } else {
    GroupStep number{Opcode::kNumber, {}, {}, place, 1};
    number.is_for_row = is_for_row_;
    // PyTorch's mul_ multiplies such a number by the tensor.
    const bool is_cast = casts_number(step) || (is_in_place_ && step.opcode == Opcode::kMul);
    step.sources.push_back({false, is_cast ? add_narrowed(std::move(number)) : add_step(std::move(number))});
  }
  return true;
}

void PointwiseGroup::add_literal(int64_t number, GroupStep& step) {
  step.number = static_cast<uint8_t>(literals_.size());
  step.num_numbers = 1;
  literals_.push_back(number);
}

bool PointwiseGroup::add_correction(const c10::IValue& argument, GroupStep& step) {
  const auto number = correction(argument);
  if (number) {
    add_literal(*number, step);
  }
  return number.has_value();
}

// Where the second operand is one number for a row, the CPU's compiler takes its product out of the loop over elements,
// but not of that over vectors, so that some elements are rounded once and others twice. Those of narrow floats always
// are.
bool PointwiseGroup::rounds_by_place(const GroupStep& step) const {
  if (is_of_integers()) {
    return false;
  }
  const bool adds = step.opcode == Opcode::kAdd || step.opcode == Opcode::kSub;
  const bool has_product = (adds && real_number(graph_->scalars()[numbers_[step.number].scalar]) != 1) ||
                           step.opcode == Opcode::kTanhBackward;
  if (!has_product) {
    return false;
  }
  if (kernels::is_narrow_float(call_dtype_) && adds) {
    return true;
  }
  const auto [is_input, index] = step.sources[1];
  if (!is_input) {
    return steps_[index].opcode == Opcode::kNumber || steps_[index].opcode == Opcode::kSpread;
  }
  for (size_t dim = 0; dim < layout_.sizes.size(); ++dim) {
    if (layout_.sizes[dim] != 1 && inputs_[index].strides[dim] == 0) {
      return true;
    }
  }
  return false;
}

// The first call says how all lie.
bool PointwiseGroup::begin_layout(const GraphNode& node, const PointwiseOp& op, c10::ScalarType dtype) {
  is_for_row_ = false;
  layout_ = node.layout_of(0);
  if (op.kind == PointwiseOp::Kind::kReduces) {
    layout_ = seen_by(node.operand(0));
    layout_.offset = 0;
  }
  const auto computing = kernels::computing_dtype(dtype);
  layout_.dtype = computing.value_or(dtype);
  return computing && layout_.numel() > 0 && layout_.is_dense();
}

// Whether the results lie as those of the group, or are one element for each row.
bool PointwiseGroup::has_layout(const GraphNode& node, const PointwiseOp& op) {
  const Signature& signature = *node.signature();
  if (!makes_values(node, op)) {
    return false;
  }
  const Geometry& result = node.layout_of(0);
  // What is written has its own dtype: float32 += float64 is computed in float64.
  const bool promotes = op.kind == PointwiseOp::Kind::kCompares || (node.op().writes() && op.opcode != Opcode::kCopy);
  const bool is_bitwise = op.kind == PointwiseOp::Kind::kBits;
  const bool is_logic = op.kind == PointwiseOp::Kind::kLogic || is_bitwise;
  const bool is_of_truths = (is_logic || op.kind == PointwiseOp::Kind::kCompares) && are_truths(signature) &&
                            result.dtype == c10::ScalarType::Bool;
  const c10::ScalarType dtype = is_of_truths ? layout_.dtype : promotes ? promoted_dtype(signature) : result.dtype;
  // Comparisons in place make numbers of their operand's dtype.
  const bool is_storable = result.dtype == dtype || result.dtype == c10::ScalarType::Bool;
  const bool has_bits = is_bitwise && c10::isIntegralType(dtype, /*includeBool=*/false);
  if ((is_of_truths && nodes_.empty()) || (is_logic && !is_of_truths && !has_bits)) {
    return false; // nobody says in which dtype, or these are neither truths nor integers
  }
  call_dtype_ = is_of_truths ? c10::ScalarType::Bool : dtype;
  is_in_place_ = node.op().writes();
  if (op.kind == PointwiseOp::Kind::kTotals) {
    is_for_row_ = false;
    return has_total(node);
  }
  const bool begins = nodes_.empty() && window_.is_all();
  if (result.offset != 0 || result.has_bits() || !is_storable || (begins && !begin_layout(node, op, dtype)) ||
      kernels::computing_dtype(dtype) != layout_.dtype) {
    return false;
  }
  if (!window_.is_all()) {
    is_for_row_ = false;
    return !is_in_place_ && !kernels::is_about_rows(op.opcode) && result.sizes == sizes_in_window() &&
           result.is_contiguous() && has_rows_of(kMinRow);
  }
  if (op.kind == PointwiseOp::Kind::kReduces) {
    // The CPU sums up in this order if they lie so.
    const Geometry& reduced = seen_by(node.operand(0));
    is_for_row_ = false;
    return can_reduce(op) && (is_row_of(result) || is_squeezed_row_of(result)) && reduced.dtype == layout_.dtype &&
           dtype == layout_.dtype && layout_.same_memory(reduced.sizes, reduced.strides);
  }
  const bool may_write = !is_in_place_ || contains(node.operand(0).value().node);
  is_for_row_ = has_rows_of(kMinRow) && is_row_of(result) && may_write && reads_row(node);
  return is_for_row_ || (result.sizes == layout_.sizes && result.strides == layout_.strides);
}

// Of all elements, in the order of their memory. It does not begin a group: alone, it has better kernels.
bool PointwiseGroup::has_total(const GraphNode& node) const {
  const Geometry& result = node.layout_of(0);
  const Geometry& reduced = seen_by(node.operand(0));
  return !nodes_.empty() && window_.is_all() && result.sizes.empty() && !result.has_bits() &&
         result.dtype == layout_.dtype && reduced.dtype == layout_.dtype && reduced.sizes == layout_.sizes &&
         reduced.strides == layout_.strides && layout_.is_contiguous() &&
         kernels::can_total(layout_.dtype, layout_.numel());
}

c10::DimVector PointwiseGroup::sizes_in_window() const {
  c10::DimVector sizes = layout_.sizes;
  if (!window_.is_all()) {
    sizes.back() = window_.size();
  }
  return sizes;
}

bool PointwiseGroup::can_reduce(const PointwiseOp& op) const {
  const bool is_norm = op.opcode == Opcode::kRowNorm;
  return has_rows_of(op.is_function() ? op.min_row : kMinRow) &&
         (!is_norm || (layout_.dtype == c10::ScalarType::Float && kernels::has_norms_of_pytorch()));
}

bool PointwiseGroup::has_rows_of(int64_t min_length) const {
  return are_rows_without_gaps(layout_.sizes, layout_.strides) && layout_.sizes.back() >= min_length;
}

bool PointwiseGroup::is_row_of(const Geometry& result) const {
  c10::DimVector sizes = layout_.sizes;
  sizes.back() = 1;
  return result.sizes == sizes && result.is_contiguous();
}

// The same, but the dimension of the rows is gone.
bool PointwiseGroup::is_squeezed_row_of(const Geometry& result) const {
  return result.sizes == c10::IntArrayRef(layout_.sizes.begin(), layout_.sizes.end() - 1) && result.is_contiguous();
}

// What has been made of the rows, or a view of it, with dimensions for which it is the same: as it is broadcast, the
// elements of a row see that of the row.
bool PointwiseGroup::is_one_for_each_row(const GraphUse& operand) const {
  const Geometry& seen = seen_by(operand);
  const auto strides = seen.strides_for(layout_.sizes);
  if (!strides || seen.dtype != operand.value().layout().dtype || seen.has_bits() || seen.offset != 0 ||
      (operand.view() && operand.view()->moves())) {
    return false;
  }
  int64_t expected = 1;
  for (size_t dim = layout_.sizes.size() - 1; dim-- > 0;) {
    if (layout_.sizes[dim] != 1 && (*strides)[dim] != expected) {
      return false;
    }
    expected *= layout_.sizes[dim];
  }
  return strides->back() == 0;
}

bool PointwiseGroup::reads_row(const GraphNode& node) const {
  for (size_t i = 0; i < node.num_operands(); ++i) {
    const GraphValue value = node.operand(i).value();
    if (value.defined() && contains(value.node) && steps_[step_of(value)].makes_one()) {
      return true;
    }
  }
  return false;
}

std::optional<GroupStep::Source> PointwiseGroup::find_source(const GraphUse& operand) {
  const GraphValue value = operand.value();
  if (!value.defined()) {
    return std::nullopt;
  }
  if (contains(value.node)) {
    const GroupStep::Source source{false, step_of(value)};
    const bool makes_one = steps_[source.index].makes_one();
    const bool is_total = steps_[source.index].total != kernels::Total::kNone;
    const bool lies_so = makes_one ? is_one_for_each_row(operand) : !operand.view() && !is_for_row_;
    if (!lies_so || is_total || window_of(value.node) != window_) {
      return std::nullopt;
    }
    return is_for_row_ ? source : spread(source);
  }
  const Geometry& seen = seen_by(operand);
  const auto strides = seen.strides_for(sizes_in_window());
  if (!strides || seen.dtype != value.layout().dtype || !kernels::can_read(seen.dtype) || seen.conj || seen.neg) {
    return std::nullopt;
  }
  // A tile holds an input's element for each of its own, and not one for each row; where all are one, that is the same.
  const bool is_one = std::all_of(strides->begin(), strides->end(), [](int64_t stride) { return stride == 0; });
  if (is_for_row_ && !is_one) {
    return std::nullopt;
  }
  const uint32_t offset_scalar = operand.view() ? operand.view()->offset_scalar : View::kFixed;
  for (uint32_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].value == value && inputs_[i].offset == seen.offset && inputs_[i].offset_scalar == offset_scalar &&
        inputs_[i].strides == *strides && inputs_[i].window == window_) {
      return GroupStep::Source{true, i};
    }
  }
  if (is_torn(layout_.sizes, layout_.strides, {seen.offset, *strides, window_})) {
    return std::nullopt;
  }
  inputs_.push_back({value, seen.offset, offset_scalar, *strides, window_});
  return GroupStep::Source{true, static_cast<uint32_t>(inputs_.size() - 1)};
}

size_t PointwiseGroup::index_of(const GraphNode* node) const {
  return static_cast<size_t>(std::find(nodes_.begin(), nodes_.end(), node) - nodes_.begin());
}

bool PointwiseGroup::contains(const GraphNode* node) const {
  return index_of(node) < nodes_.size();
}

bool PointwiseGroup::reads(GraphValue value) const {
  return std::any_of(inputs_.begin(), inputs_.end(), [&](const Input& input) { return input.value == value; });
}

bool PointwiseGroup::is_read_outside(const GraphNode& node, uint32_t output) const {
  for (const GraphUse* use = node.uses_of(output); use; use = use->next()) {
    if (!contains(use->user())) {
      return true;
    }
  }
  return false;
}

bool PointwiseGroup::has_outputs() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [this](const GraphNode* node) {
    for (uint32_t i = 0; i < node->num_outputs(); ++i) {
      if (is_read_outside(*node, i)) {
        return true;
      }
    }
    return false;
  });
}

std::vector<PointwiseGroup::Output> PointwiseGroup::outputs() const {
  std::vector<Output> outputs;
  const auto inputs_of = inputs_of_steps(steps_, inputs_.size());
  for (GraphNode* node : nodes_) {
    for (uint32_t i = 0; i < node->num_outputs(); ++i) {
      if (!is_read_outside(*node, i)) {
        continue;
      }
      Output& output = outputs.emplace_back(Output{node->output(i), {}, written_input(*node)});
      const uint32_t step = step_of(output.value);
      output.is_for_row = steps_[step].makes_one();
      output.total = steps_[step].total;
      for (uint32_t input = 0; input < inputs_.size(); ++input) {
        if (inputs_of[step][input]) {
          output.inputs.push_back(input);
        }
      }
    }
  }
  return outputs;
}

// Perhaps by others before it.
std::optional<uint32_t> PointwiseGroup::written_input(const GraphNode& node) const {
  if (node.signature()->written.empty()) {
    return std::nullopt;
  }
  const GraphValue old = node.operand(0).value();
  if (contains(old.node)) {
    return written_input(*old.node);
  }
  const auto input =
      std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& input) { return input.value == old; });
  return input == inputs_.end() ? std::nullopt : std::optional<uint32_t>(input - inputs_.begin());
}

kernels::Program PointwiseGroup::program(const std::vector<Output>& outputs) const {
  std::vector<uint32_t> made;
  for (const Output& output : outputs) {
    made.push_back(step_of(output.value));
  }
  return make_program(steps_, {layout_.dtype, inputs_.size(), numbers_.size(), literals_.size()}, made);
}

} // namespace lazyplug
