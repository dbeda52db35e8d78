// How many registers instructions need, for what assembly.cpp chooses and run_writer.h writes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>

#include "kernels/instruction_writer.h"
#include "kernels/row_sums_writer.h"
#include "kernels/tile_program.h"

namespace lazyplug::kernels {
namespace {

// At most, while its code is written: see kernels/instruction_writer.h.
int64_t num_temporaries(Opcode opcode) {
  return opcode == Opcode::kLerp ? 3 : opcode == Opcode::kClamp ? 2 : 1;
}

// For one vector: what it reads, what it makes, and what is temporary.
int64_t registers_of(const Instruction& instruction) {
  const auto values = values_read(instruction);
  const auto of_rows = [](Value value) { return value >= kFirstOfRow; };
  const auto num_read = static_cast<int64_t>(values.size()) - std::count_if(values.begin(), values.end(), of_rows);
  return num_read + 1 + num_temporaries(instruction.opcode);
}

// From a row's beginning to its end, but for what is read as one element.
int64_t registers_of_rows(const Instruction& instruction) {
  const bool reads_columns = instruction.opcode == Opcode::kJoin;
  return reduces_rows(instruction.opcode) ? RowSumWriter::num_registers(instruction.opcode)
         : reads_columns                  ? RowSumWriter::num_vectors()
                                          : 0;
}

// The most results of a run's instructions that are still to be read when another one is made.
int64_t most_alive(const Program& program, size_t begin, size_t end) {
  const auto at = [&](size_t place) { return program.instructions.begin() + static_cast<std::ptrdiff_t>(place); };
  int64_t most = 0;
  std::set<Slot> alive;
  for (size_t i = end; i-- > begin;) {
    const Instruction& instruction = program.instructions[i];
    alive.erase(instruction.out);
    alive.insert(instruction.inputs, instruction.inputs + num_inputs(instruction.opcode));
    const auto made = std::count_if(alive.begin(), alive.end(), [&](Slot slot) {
      return std::any_of(at(begin), at(i), [&](const Instruction& earlier) { return earlier.out == slot; });
    });
    most = std::max(most, static_cast<int64_t>(made));
  }
  return most;
}

constexpr int64_t kOtherRegisters = 8; // inputs, numbers and constants

// Whether what is made of so many vectors at a time stays in registers.
bool fit(int64_t vectors, int64_t most_alive, int64_t num_registers, int64_t others = kOtherRegisters) {
  return vectors * (most_alive + 1) + others <= num_registers;
}

} // namespace
} // namespace lazyplug::kernels
