#pragma once

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/assembly.h"
#include "kernels/tile_loops.h"
#include "kernels/tile_program.h"

namespace lazyplug::kernels {

// What a slot needs of a tile's memory: nothing if what it holds is elsewhere.
enum class SlotNeed : uint8_t { kNothing, kOnePerRow, kAll };
using SlotNeeds = std::array<SlotNeed, kMaxSlots>;

// What one thread computes at a time: as many elements of each slot of a program. Slots point to memory of the tile,
// which is small enough for the L1 cache, until they are told to point elsewhere; those that need none, to nothing.
template <typename T>
struct Tile {
  // As many elements as there is room for, but not too many; of a program with rows, as many rows as a part of the tile
  // has room for, or one.
  Tile(const Program& program, const SlotNeeds& needs, int64_t row_length = 0) : row_length(row_length) {
    const auto num_with = [&](SlotNeed need) {
      return int64_t{std::count(needs.begin(), needs.begin() + program.num_slots, need)};
    };
    const int64_t num_whole = std::max(num_with(SlotNeed::kAll), int64_t{1});
    if (row_length == 0) {
      size = std::min(kMaxSize, kCapacity / num_whole / kAlignment * kAlignment);
    } else {
      const int64_t num_ones = num_with(SlotNeed::kOnePerRow);
      int64_t num_rows = std::max(std::max(kMaxSize, kShareOfRows / num_whole) / row_length, int64_t{1});
      const auto has_room = [&] {
        return num_whole * aligned(num_rows * row_length) + num_ones * aligned(num_rows) <= kCapacity;
      };
      while (num_rows > 1 && !has_room()) {
        --num_rows;
      }
      TORCH_INTERNAL_ASSERT(has_room(), "a row does not fit into a tile");
      size = num_rows * row_length;
    }
    T* next = elements;
    for (size_t slot = 0; slot < program.num_slots; ++slot) {
      owned[slot] = slots[slot] = needs[slot] == SlotNeed::kNothing ? nullptr : next;
      next += needs[slot] == SlotNeed::kAll         ? aligned(size)
              : needs[slot] == SlotNeed::kOnePerRow ? aligned(size / row_length)
                                                    : 0;
    }
  }
  T* own(size_t slot) {
    return owned[slot];
  }

  static int64_t aligned(int64_t n) {
    return (n + kAlignment - 1) / kAlignment * kAlignment;
  }

  static constexpr int64_t kMaxSize = std::max<int64_t>(512, 2048 / sizeof(T));
  static constexpr int64_t kCapacity = kTileBytes / sizeof(T);
  static constexpr int64_t kShareOfRows = kCapacity / 4; // what is read and written in place is in that cache, too
  static constexpr int64_t kAlignment = 64 / sizeof(T);

  int64_t row_length; // 0: there are no rows
  int64_t size;       // elements of a slot
  T* slots[kMaxSlots];
  T* owned[kMaxSlots];
  alignas(64) T elements[kCapacity]; // not initialised
};

// Some instructions, by their loops, on the elements from `first` up to n; 0 if some are about rows.
template <typename T>
void run_loops(
    c10::ArrayRef<Instruction> instructions,
    const double* numbers,
    int64_t first,
    int64_t n,
    T* const* slots,
    int64_t row_length) {
  const Loops<T>& loops = kernels::loops<T>();
  const auto number = [&](const Instruction& instruction, size_t place, uint8_t index) {
    return traits(instruction.opcode).num_numbers > place ? number_as<T>(numbers[index]) : T(0);
  };
  for (const Instruction& instruction : instructions) {
    const auto opcode = static_cast<size_t>(instruction.opcode);
    T* out = slots[instruction.out] + first;
    const T* a = slots[instruction.inputs[0]] + first;
    const T* b = slots[instruction.inputs[1]] + first;
    const T* c = slots[instruction.inputs[2]] + first;
    const T s = number(instruction, 0, instruction.number);
    const T t = number(instruction, 1, instruction.second_number);
    if (is_about_rows(instruction.opcode)) {
      loops.of_rows[opcode](n / row_length, row_length, out, a, b, c, s, t);
    } else {
      loops.of[opcode](instruction.is_for_row ? n / row_length : n - first, out, a, b, c, s, t);
    }
  }
}

// All instructions on the first n elements: runs that have machine code by that, but for the elements that fill no
// vector.
inline void run_assembly(
    const Program& program,
    const Assembly& assembly,
    const double* numbers,
    int64_t n,
    const Tile<float>& tile) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  const c10::ArrayRef<Instruction> all = program.instructions;
  std::array<float, 256> floats; // NOLINT(cppcoreguidelines-pro-type-member-init): as many as there are numbers
  std::transform(numbers, numbers + program.num_numbers, floats.begin(), [](double x) {
    return static_cast<float>(x);
  });
  size_t next = 0;
  for (const Assembly::Run& run : assembly.runs(tile.row_length)) {
    const int64_t num_whole = n / run.num_lanes * run.num_lanes;
    run_loops(all.slice(next, run.begin - next), numbers, 0, n, tile.slots, tile.row_length);
    if (num_whole != 0) {
      run.code(num_whole * kBytes, tile.slots, floats.data(), tile.row_length * kBytes);
    }
    if (num_whole != n) {
      run_loops(all.slice(run.begin, run.end - run.begin), numbers, num_whole, n, tile.slots, tile.row_length);
    }
    next = run.end;
  }
  run_loops(all.slice(next), numbers, 0, n, tile.slots, tile.row_length);
}

// `assembly` may be null.
template <typename T>
void run_tile(const Program& program, const Assembly* assembly, const double* numbers, int64_t n, const Tile<T>& tile) {
  if constexpr (std::is_same_v<T, float>) {
    if (assembly) {
      return run_assembly(program, *assembly, numbers, n, tile);
    }
  }
  run_loops<T>(program.instructions, numbers, 0, n, tile.slots, tile.row_length);
}

} // namespace lazyplug::kernels
