#include "lowering/fusion/foreach_group.h"

#include <algorithm>
#include <string_view>

#include "lowering/fusion/narrow_floats.h"
#include "lowering/fusion/pointwise_ops.h"
#include "lowering/fusion/program_numbers.h"

namespace lazyplug {
namespace {

using kernels::Opcode;

struct Row {
  const char* op; // without the _ of its variant that writes
  const char* overload;
  Opcode opcode;
};

// Ops whose rounding is that of the instruction. Square roots are asked from the library that the CPU's kernel asks,
// unless they are functions of our own.
constexpr Row kRows[] = {
    {"aten::_foreach_copy", "", Opcode::kCopy},
    {"aten::_foreach_neg", "", Opcode::kNeg},
    {"aten::_foreach_abs", "", Opcode::kAbs},
    {"aten::_foreach_sqrt", "", Opcode::kSqrt},
    {"aten::_foreach_reciprocal", "", Opcode::kReciprocal},
    {"aten::_foreach_add", "Scalar", Opcode::kAddNumber},
    {"aten::_foreach_add", "ScalarList", Opcode::kAddNumber},
    {"aten::_foreach_sub", "Scalar", Opcode::kSubNumber},
    {"aten::_foreach_sub", "ScalarList", Opcode::kSubNumber},
    {"aten::_foreach_mul", "Scalar", Opcode::kMulNumber},
    {"aten::_foreach_mul", "ScalarList", Opcode::kMulNumber},
    {"aten::_foreach_div", "Scalar", Opcode::kDivNumber},
    {"aten::_foreach_div", "ScalarList", Opcode::kDivNumber},
    {"aten::_foreach_add", "List", Opcode::kAdd},
    {"aten::_foreach_sub", "List", Opcode::kSub},
    {"aten::_foreach_mul", "List", Opcode::kMul},
    {"aten::_foreach_div", "List", Opcode::kDiv},
    {"aten::_foreach_addcmul", "Scalar", Opcode::kAddcmul},
    {"aten::_foreach_addcmul", "ScalarList", Opcode::kAddcmul},
    {"aten::_foreach_addcdiv", "Scalar", Opcode::kAddcdiv},
    {"aten::_foreach_addcdiv", "ScalarList", Opcode::kAddcdiv},
    {"aten::_foreach_lerp", "Scalar", Opcode::kLerp},
    {"aten::_foreach_lerp", "ScalarList", Opcode::kLerp},
};

// In float32, if functions are ours.
std::optional<Opcode> foreach_function_of(const GraphNode& node) {
  const PointwiseOp* function = computes_functions() ? find_function(node.op(), {}) : nullptr;
  const auto& operands = node.signature()->operands;
  return function && !operands.empty() && operands[0].dtype == c10::ScalarType::Float ? std::optional(function->opcode)
                                                                                      : std::nullopt;
}

std::optional<Opcode> opcode_of(const OpInfo& op) {
  std::string_view base = op.base_name();
  if (base.ends_with('_')) {
    base.remove_suffix(1);
  }
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& row) {
    return base == row.op && op.overload() == row.overload;
  });
  return row == std::end(kRows) ? std::nullopt : std::optional(row->opcode);
}

} // namespace

bool ForeachGroup::add(GraphNode& node) {
  if (!node.is_call() || !node.op().is_foreach()) {
    return false;
  }
  const auto function = foreach_function_of(node);
  const auto opcode = function ? function : opcode_of(node.op());
  ForeachGroup extended = *this;
  if (!opcode || !extended.add_call(node, *opcode)) {
    return false;
  }
  *this = std::move(extended);
  return true;
}

bool ForeachGroup::add_call(GraphNode& node, Opcode opcode) {
  const Signature& signature = *node.signature();
  const bool writes = !signature.written.empty();
  kernels::Instruction instruction{opcode, 0};
  // A copy reads its second list only. Copies of narrow floats keep their bits, which NaN does not when it is rounded.
  const bool is_copy = opcode == Opcode::kCopy;
  const size_t num_lists = is_copy ? 2 : kernels::num_inputs(opcode);
  if ((is_copy && !writes) || !has_layouts(signature, num_lists) || !bind_numbers(node, instruction) ||
      (is_copy && kernels::is_narrow_float(dtype_))) {
    return false;
  }
  std::vector<uint8_t> lists;
  for (size_t i = 0; i < num_lists; ++i) {
    const auto list = list_of(node, i * num_rows());
    if (!list) {
      return false;
    }
    lists.push_back(*list);
    instruction.inputs[i] = *list;
  }
  if (is_copy) {
    instruction.inputs[0] = lists[1];
  }
  if (writes ? !can_write(lists[0]) : !returns_layouts(signature)) {
    return false;
  }
  instruction.out = writes ? lists[0] : add_fresh(node);
  if (writes) {
    write(instruction.out, node);
  }
  nodes_.push_back(&node);
  return append_rounded(instructions_, dtype_, instruction) && lists_.size() <= kernels::kMaxSlots;
}

// Whether all lists have the rows of the group, each element without gaps.
bool ForeachGroup::has_layouts(const Signature& signature, size_t num_lists) {
  const auto& operands = signature.operands;
  if (operands.empty() || operands.size() % num_lists != 0 || !signature.on_cpu.empty()) {
    return false;
  }
  if (nodes_.empty()) {
    dtype_ = operands[0].dtype;
    for (size_t row = 0; row < operands.size() / num_lists; ++row) {
      layouts_.push_back(&operands[row]);
    }
  }
  const auto fits = [&](size_t i) {
    const Geometry& operand = operands[i];
    const Geometry& layout = *layouts_[i % num_rows()];
    return operand.dtype == dtype_ && operand.sizes == layout.sizes && operand.strides == layout.strides &&
           operand.is_dense() && !operand.has_bits();
  };
  bool all_fit = kernels::computes_floats_of(dtype_) && operands.size() == num_lists * num_rows();
  for (size_t i = 0; all_fit && i < operands.size(); ++i) {
    all_fit = fits(i);
  }
  return all_fit;
}

// Whether what is new lies as a kernel makes it.
bool ForeachGroup::returns_layouts(const Signature& signature) const {
  return std::equal(
      signature.outputs.begin(),
      signature.outputs.end(),
      layouts_.begin(),
      layouts_.end(),
      [](const Geometry& output, const Geometry* layout) {
        return output.dtype == layout->dtype && output.sizes == layout->sizes &&
               output.strides == strides_of_result(layout->sizes, layout->strides);
      });
}

// The list that holds these values, perhaps a new one; none if they are in several, or in other places.
std::optional<uint8_t> ForeachGroup::list_of(const GraphNode& node, size_t first_operand) {
  if (node.operand(first_operand).view()) {
    return list_of_views(node, first_operand);
  }
  const auto known = places_.find(node.operand(first_operand).value());
  const bool is_new = known == places_.end();
  const auto list = is_new ? static_cast<uint8_t>(lists_.size()) : known->second.list;
  if (is_new) {
    lists_.emplace_back();
  }
  for (uint32_t row = 0; row < num_rows(); ++row) {
    const GraphUse& operand = node.operand(first_operand + row);
    const GraphValue value = operand.value();
    if (operand.view()) {
      return std::nullopt;
    }
    const auto [place, is_added] = places_.try_emplace(value, Place{list, row});
    if (is_added != is_new || place->second.list != list || place->second.row != row) {
      return std::nullopt;
    }
    if (is_new) {
      lists_[list].first.push_back(value);
    }
    ++reads_[value];
  }
  if (is_new) {
    lists_[list].last = lists_[list].first;
  }
  return list;
}

// Such as the real numbers of complex parameters. A list of its own, whatever else reads it; but the CPU goes row by
// row, so a view of what the call itself writes is read as other rows have left it.
std::optional<uint8_t> ForeachGroup::list_of_views(const GraphNode& node, size_t first_operand) {
  if (node.signature()->shares_written) {
    return std::nullopt;
  }
  List list;
  for (uint32_t row = 0; row < num_rows(); ++row) {
    const GraphUse& operand = node.operand(first_operand + row);
    if (!operand.view() || is_own(operand.value())) {
      return std::nullopt;
    }
    list.first.push_back(operand.value());
    list.views.push_back(&operand);
    ++reads_[operand.value()];
  }
  list.last = list.first;
  lists_.push_back(std::move(list));
  return static_cast<uint8_t>(lists_.size() - 1);
}

bool ForeachGroup::bind_numbers(const GraphNode& node, kernels::Instruction& instruction) {
  const auto& scalars = node.scalars();
  if (scalars.size() != (kernels::takes_number(instruction.opcode) ? 1 : 0)) {
    return false;
  }
  if (scalars.empty()) {
    return true;
  }
  const c10::IValue& example = graph_->scalars()[scalars[0]];
  const bool is_list = example.isList();
  const auto numbers = is_list ? example.toListRef() : c10::ArrayRef<c10::IValue>(example);
  instruction.number = static_cast<uint8_t>(numbers_.size());
  numbers_.push_back({scalars[0], is_list});
  return std::all_of(numbers.begin(), numbers.end(), real_number) && (!is_list || numbers.size() == num_rows()) &&
         numbers_.size() < 256;
}

uint8_t ForeachGroup::add_fresh(GraphNode& node) {
  const auto list = static_cast<uint8_t>(lists_.size());
  lists_.emplace_back();
  for (uint32_t row = 0; row < num_rows(); ++row) {
    lists_[list].last.push_back(node.output(row));
    places_[node.output(row)] = {list, row};
  }
  return list;
}

// Not if the old value is the group's own, and somebody else needs it: it has no memory but that of the new one.
bool ForeachGroup::can_write(uint8_t list) const {
  const auto& last = lists_[list].last;
  return lists_[list].views.empty() && std::all_of(last.begin(), last.end(), [this](GraphValue value) {
           return !is_own(value) || value.num_uses() == num_reads(value);
         });
}

bool ForeachGroup::is_own(GraphValue value) const {
  return std::find(nodes_.begin(), nodes_.end(), value.node) != nodes_.end();
}

void ForeachGroup::write(uint8_t list, GraphNode& node) {
  List& written = lists_[list];
  written.is_written = true;
  for (uint32_t row = 0; row < num_rows(); ++row) {
    places_.erase(written.last[row]);
    written.last[row] = node.output(row);
    places_[node.output(row)] = {list, row};
  }
}

size_t ForeachGroup::num_reads(GraphValue value) const {
  const auto found = reads_.find(value);
  return found == reads_.end() ? 0 : found->second;
}

// Single numbers come before lists.
uint8_t ForeachGroup::place_of_number(size_t index) const {
  size_t place = 0;
  for (size_t i = 0; i < numbers_.size(); ++i) {
    const bool is_before =
        numbers_[i].is_list == numbers_[index].is_list ? i < index : numbers_[index].is_list && !numbers_[i].is_list;
    place += is_before ? 1 : 0;
  }
  return static_cast<uint8_t>(place);
}

kernels::Program ForeachGroup::program(const std::vector<uint8_t>& with_memory) const {
  std::vector<uint8_t> slots(lists_.size(), 0);
  std::vector<bool> has_memory(lists_.size());
  uint8_t next = 0;
  for (const uint8_t list : with_memory) {
    slots[list] = next++;
    has_memory[list] = true;
  }
  for (size_t list = 0; list < lists_.size(); ++list) {
    slots[list] = has_memory[list] ? slots[list] : next++;
  }
  kernels::Program program{
      *kernels::computing_dtype(dtype_),
      static_cast<uint8_t>(with_memory.size()),
      next,
      static_cast<uint8_t>(numbers_.size()),
      {}};
  for (kernels::Instruction instruction : instructions_) {
    instruction.out = slots[instruction.out];
    for (kernels::Slot& input : instruction.inputs) {
      input = slots[input];
    }
    if (kernels::takes_number(instruction.opcode)) {
      instruction.number = place_of_number(instruction.number);
    }
    program.instructions.push_back(instruction);
  }
  return program;
}

} // namespace lazyplug
