#include "lowering/fusion/group_steps.h"

#include <algorithm>
#include <optional>

namespace lazyplug {
namespace {

// By step: the last one that reads what it makes.
std::vector<size_t> last_reads(const std::vector<GroupStep>& steps) {
  std::vector<size_t> result(steps.size(), 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const GroupStep::Source& source : steps[i].sources) {
      if (!source.is_input) {
        result[source.index] = i;
      }
    }
  }
  return result;
}

// By step: where it puts what it makes, slots after those with memory as long as somebody needs it. What is one element
// for each row has slots of its own, which need little room in a tile, and are not overwritten while rows are gone
// through.
std::vector<kernels::Slot> place_results(
    const std::vector<GroupStep>& steps,
    const std::vector<size_t>& last_read,
    size_t num_inputs,
    const std::vector<uint32_t>& outputs) {
  const size_t first_free = num_inputs + outputs.size();
  std::vector<std::optional<kernels::Slot>> slots(steps.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    slots[outputs[i]] = static_cast<kernels::Slot>(num_inputs + i);
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!slots[i] && steps[i].place_of != GroupStep::kNone) {
      slots[i] = slots[steps[i].place_of];
    }
  }
  // What nobody else needs is made where it is added up.
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].total == kernels::Total::kNone || steps[i].sources[0].is_input) {
      continue;
    }
    const uint32_t source = steps[i].sources[0].index;
    if (!slots[source] && last_read[source] == i && !steps[source].makes_one()) {
      slots[source] = slots[i];
    }
  }
  auto next = static_cast<kernels::Slot>(first_free);
  std::vector<kernels::Slot> free_ones;
  std::vector<kernels::Slot> free_wholes;
  const auto free_like = [&](size_t step) -> auto& { return steps[step].makes_one() ? free_ones : free_wholes; };
  std::vector<kernels::Slot> result;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const auto [is_input, index] : steps[i].sources) {
      if (is_input || last_read[index] != i || *slots[index] < first_free) {
        continue;
      }
      auto& free = free_like(index);
      if (std::find(free.begin(), free.end(), *slots[index]) == free.end()) { // not twice
        free.push_back(*slots[index]);
      }
    }
    if (!slots[i]) {
      auto& free = free_like(i);
      slots[i] = free.empty() ? next++ : free.back();
      free.resize(free.empty() ? 0 : free.size() - 1);
    }
    result.push_back(*slots[i]);
  }
  return result;
}

bool is_in_place(const GroupStep& step, const std::vector<kernels::Slot>& slots, kernels::Slot out) {
  return !step.sources[0].is_input && slots[step.sources[0].index] == out;
}

} // namespace

std::vector<std::vector<bool>> inputs_of_steps(const std::vector<GroupStep>& steps, size_t num_inputs) {
  std::vector<std::vector<bool>> result;
  for (const GroupStep& step : steps) {
    std::vector<bool> inputs(num_inputs);
    for (const auto& sources :
         {c10::ArrayRef<GroupStep::Source>(step.sources), c10::ArrayRef<GroupStep::Source>(step.unread)}) {
      for (const auto [is_input, index] : sources) {
        for (size_t i = 0; i < inputs.size(); ++i) {
          inputs[i] = inputs[i] || (is_input ? i == index : result[index][i]);
        }
      }
    }
    result.push_back(std::move(inputs));
  }
  return result;
}

kernels::Program
make_program(const std::vector<GroupStep>& steps, const GroupSize& size, const std::vector<uint32_t>& outputs) {
  kernels::Program program;
  program.dtype = size.dtype;
  program.num_memory = static_cast<uint8_t>(size.num_inputs + outputs.size());
  program.num_slots = program.num_memory;
  program.num_numbers = static_cast<uint8_t>(size.num_numbers + size.num_literals);
  const auto last_read = last_reads(steps);
  const auto slots = place_results(steps, last_read, size.num_inputs, outputs);
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool is_stored_alone = last_read[i] == 0; // what is stored is rounded on its way
    const bool is_as_stored = kernels::is_narrowing(steps[i].opcode) || steps[i].total != kernels::Total::kNone;
    if (is_stored_alone && is_as_stored && is_in_place(steps[i], slots, slots[i])) {
      continue;
    }
    kernels::Instruction& instruction =
        program.instructions.emplace_back(kernels::Instruction{steps[i].opcode, slots[i]});
    instruction.is_for_row = steps[i].is_for_row;
    const bool takes_literal = kernels::takes_literal(steps[i].opcode);
    instruction.number = static_cast<uint8_t>(steps[i].number + (takes_literal ? size.num_numbers : 0));
    instruction.second_number = steps[i].num_numbers > 1 ? steps[i].number + 1 : 0;
    for (size_t j = 0; j < steps[i].sources.size(); ++j) {
      const auto [is_input, index] = steps[i].sources[j];
      instruction.inputs[j] = is_input ? static_cast<kernels::Slot>(index) : slots[index];
    }
    program.num_slots = std::max<uint8_t>(program.num_slots, slots[i] + 1);
  }
  return program;
}

} // namespace lazyplug
