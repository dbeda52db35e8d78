#pragma once

#include <cstdint>
#include <vector>

#include "kernels/pointwise.h"

namespace lazyplug {

// What a group computes, before it is known where that is put: an instruction whose operands are inputs of the group,
// or what steps before it make.
struct GroupStep {
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Source {
    bool is_input;
    uint32_t index; // of the input, or of the step
  };

  kernels::Opcode opcode;
  c10::SmallVector<Source, 3> sources;
  c10::SmallVector<Source, 1> unread; // sources whose values do not matter
  uint8_t number = 0;                 // the first of them; or which of the literals
  uint8_t num_numbers = 0;
  bool is_for_row = false; // see kernels::Instruction
  kernels::Total total = kernels::Total::kNone;
  uint32_t place_of = kNone; // the only step that reads what this one makes, and may put its result there
  uint32_t spread = kNone;   // the step that spreads its result over the row

  bool makes_one() const {
    return is_for_row || kernels::reduces_rows(opcode);
  }
};

// By step and input: whether the one depends on the other.
std::vector<std::vector<bool>> inputs_of_steps(const std::vector<GroupStep>& steps, size_t num_inputs);

struct GroupSize {
  c10::ScalarType dtype; // in which it computes
  size_t num_inputs;
  size_t num_numbers;
  size_t num_literals; // numbers after the others
};

// The slots with memory are the inputs, then what the steps in `outputs` make; the others, as few as will do, are taken
// by one step after the other.
kernels::Program
make_program(const std::vector<GroupStep>& steps, const GroupSize& size, const std::vector<uint32_t>& outputs);

} // namespace lazyplug
