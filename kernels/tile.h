#pragma once

#include <algorithm>

#include "kernels/tile_loops.h"
#include "kernels/tile_program.h"

namespace lazyplug::kernels {

// What one thread computes at a time: as many elements of each slot of a program. Slots point to memory of the tile,
// which is small enough for the L1 cache, until they are told to point elsewhere.
template <typename T>
struct Tile {
  explicit Tile(const Program& program)
      : size(std::min<int64_t>(kMaxSize, kCapacity / program.num_slots / kAlignment * kAlignment)) {
    for (size_t slot = 0; slot < program.num_slots; ++slot) {
      slots[slot] = own(slot);
    }
  }
  T* own(size_t slot) {
    return &elements[slot * size];
  }

  static constexpr int64_t kMaxSize = 512;
  static constexpr int64_t kCapacity = 48 * 1024 / sizeof(T);
  static constexpr int64_t kAlignment = 64 / sizeof(T);

  int64_t size; // elements of a slot
  T* slots[kMaxSlots];
  alignas(64) T elements[kCapacity]; // not initialised
};

// All instructions on the first n elements.
template <typename T>
void run_tile(const Program& program, const double* numbers, int64_t n, const Tile<T>& tile) {
  const Loops<T>& loops = kernels::loops<T>();
  const auto number = [&](const Instruction& instruction, size_t place, uint8_t index) {
    return traits(instruction.opcode).num_numbers > place ? static_cast<T>(numbers[index]) : T(0);
  };
  for (const Instruction& instruction : program.instructions) {
    loops.of[static_cast<size_t>(instruction.opcode)](
        n,
        tile.slots[instruction.out],
        tile.slots[instruction.inputs[0]],
        tile.slots[instruction.inputs[1]],
        tile.slots[instruction.inputs[2]],
        number(instruction, 0, instruction.number),
        number(instruction, 1, instruction.second_number));
  }
}

} // namespace lazyplug::kernels
