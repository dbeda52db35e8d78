#pragma once

#include <ATen/core/stack.h>

#include <vector>

#include "kernels/assembly.h"

namespace lazyplug {

// A tile program as graphs call it:
//
//   lazyplug::tile_program(Tensor(a!)[] tensors, Scalar[] numbers, Scalar[][] number_lists, int rows, str program)
//       -> Tensor[]
//
// `tensors` holds the rows of the first slot with memory, then those of the next, and so on. The last slots with memory
// are new: their tensors are returned, as `tensors` would hold them. The program's numbers are `numbers`, and after
// them one number for each row from each of `number_lists`.
class TileKernel {
 public:
  TileKernel(kernels::Program program, size_t num_rows);

  // Takes the first three arguments from the stack, and leaves the result.
  void operator()(c10::Stack& stack) const;

 private:
  std::vector<double> read_numbers(const c10::IValue& numbers, const c10::IValue& lists) const;
  double read_number(const c10::IValue& number, size_t index) const;

  kernels::Program program_;
  kernels::AssembledLater assembly_;
  size_t num_rows_;
  std::vector<bool> is_written_; // slots with memory
  std::vector<bool> is_checked_; // numbers
  std::vector<bool> is_negated_;
};

} // namespace lazyplug
