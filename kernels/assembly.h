#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "kernels/tile_program.h"

namespace lazyplug::kernels {

// Machine code for the straight runs of cheap instructions in a program. A vector of a slot stays in a register from
// the first instruction of a run to the last, where the loops of tile_loops.h load and store it each time. Results have
// the bits of those loops, but for the signs and payloads of NaN.
//
// Where rows fill two vectors of AVX-512 or four of AVX2, or a multiple, runs may be about rows: what is made of a row,
// such as its sum, is the end of a run, and what is read as one element for each row the beginning of another.
//
// For float32 on x86-64 with AVX2 or AVX-512, if the build has found Xbyak. Memory is writable while code is written,
// and executable from then on, never both.
class Assembly {
 public:
  // Slots are pointers to elements; a number for each of the program's. There are `num_bytes` of each slot: a positive
  // multiple of the run's lanes, and whole rows if the program has some.
  using Code = void (*)(int64_t num_bytes, float* const* slots, const float* numbers, int64_t row_bytes);

  struct Run {
    size_t begin; // of the program's instructions
    size_t end;
    int64_t num_lanes = 0; // elements that are computed at a time
    Code code = nullptr;
  };

  // Those for rows of so many elements, 0 if there are none, in the order of the program; what is between them is left
  // to the loops.
  virtual const std::vector<Run>& runs(int64_t row_length = 0) const = 0;
  // Whether what the slot holds is ever in its memory: some only ever live in registers.
  virtual bool uses_memory(Slot slot, int64_t row_length) const = 0;
  virtual ~Assembly() = default;
};

// Null if there is nothing to gain, or not on this processor. Equal programs share one.
std::shared_ptr<const Assembly> assemble(const Program& program);

// That of an equal program, if there is some.
std::shared_ptr<const Assembly> find_assembled(const Program& program);

// A program's machine code, made when it has run as often as the flag `assemble_after` says, unless an equal one's is
// there.
class AssembledLater {
 public:
  // What to use for this run of the program, always the same one; may be null. From any thread.
  const Assembly* next(const Program& program) const;

 private:
  struct State {
    std::atomic<int64_t> num_runs{0};
    std::atomic<bool> is_tried{false};
    std::atomic<const Assembly*> assembly{nullptr};
    std::shared_ptr<const Assembly> owner; // written once, before `assembly`
  };
  std::shared_ptr<State> state_ = std::make_shared<State>(); // shared by copies
};

} // namespace lazyplug::kernels
