#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/opcode.h"

// Kernels of our own. They know memory and their own small programs; no tensors, no IR, no dispatcher.
namespace lazyplug::kernels {

// Slots are the columns of a program: first those that have memory, then those whose contents only live within a tile.
using Slot = uint8_t;

struct Instruction {
  Opcode opcode;
  Slot out;
  Slot inputs[3] = {0, 0, 0};
  uint8_t number = 0; // which
  uint8_t second_number = 0;
  bool is_for_row = false; // computes one element for each row

  // Whether what it makes is one element for each row.
  bool makes_one() const {
    return is_for_row || reduces_rows(opcode);
  }
};

inline size_t num_inputs(Opcode opcode) {
  return traits(opcode).num_inputs;
}
inline bool takes_number(Opcode opcode) {
  return traits(opcode).num_numbers > 0;
}

// A straight line of instructions that run on tiles of a few hundred elements, which stay in the L1 cache from the
// first instruction to the last. If some are about rows, a tile is a few whole rows.
struct Program {
  c10::ScalarType dtype = c10::ScalarType::Float; // or Double, or one of the integers
  uint8_t num_memory = 0;                         // slots with memory
  uint8_t num_slots = 0;
  uint8_t num_numbers = 0;
  std::vector<Instruction> instructions;

  bool has_rows() const;
  // Those that do not only ever hold one element for each row.
  size_t num_whole_slots() const;
};

constexpr size_t kMaxSlots = 64;
constexpr size_t kTileBytes = 48 * 1024; // of all slots together
// Of 16 bits: programs compute them in float32, and an instruction rounds after each step.
constexpr bool is_narrow_float(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Half || dtype == c10::ScalarType::BFloat16;
}
// Whether there are programs of floats for memory of this dtype.
bool computes_floats_of(c10::ScalarType dtype);
// In which dtype programs compute what has this one. Nothing if there are no programs for it.
std::optional<c10::ScalarType> computing_dtype(c10::ScalarType dtype);

// A number of a program of integers, and back: its bits.
inline double number_of_bits(int64_t number) {
  return std::bit_cast<double>(number);
}
template <typename T>
T number_as(double number) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(std::bit_cast<int64_t>(number));
  } else {
    return static_cast<T>(number);
  }
}

// "f32 memory 2 slots 3 numbers 2 2 = mul_number 1 0 ; 0 = add 0 2 1 ;" (out = name inputs numbers; "row:add" if it
// computes one element for each row), and back; nothing if it is no such text.
std::string to_string(const Program& program);
std::optional<Program> parse(std::string_view text);

// One row of what a program is applied to: as many elements in each slot with memory, without gaps, and its numbers.
struct Row {
  int64_t num_elements;
  void* const* memory;
  const double* numbers; // of integers: see number_of_bits()
};

// Machine code of a program, see kernels/assembly.h.
class Assembly;

// Runs the program on each row, in parallel if there is enough to do; by its machine code as far as there is some.
// Memory of two slots must be the same or apart. It holds what the program computes, or, if that is float32, narrow
// floats: the program is to round them where it makes them, and what it reads in one slot is what stood there before,
// whatever it has written to the same memory in another.
void run(const Program& program, c10::ArrayRef<Row> rows, c10::ScalarType memory, const Assembly* assembly = nullptr);
inline void run(const Program& program, c10::ArrayRef<Row> rows, const Assembly* assembly = nullptr) {
  run(program, rows, program.dtype, assembly);
}

} // namespace lazyplug::kernels
