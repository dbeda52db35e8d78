#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <vector>

#include "kernels/assembly.h"
#include "lowering/ir/op_info.h"
#include "lowering/nodes/node_attributes.h"

namespace lazyplug {

// A tile program as graphs call it:
//
//   lazyplug::tile_program(Tensor(a!)[] tensors, Scalar[] numbers, Scalar[][] number_lists, int rows, str program)
//       -> Tensor[]
//
// `tensors` holds the rows of the first slot with memory, then those of the next, and so on. The last slots with memory
// are new: their tensors are returned, as `tensors` would hold them. The program's numbers are `numbers`, and after
// them one number for each row from each of `number_lists`.
//
// and as one call of a program that writes some lists of tensors and reads others, which the device records as a node:
//
//   lazyplug::tile_update_(Tensor(a!)[] written, Tensor[] read, Scalar[] numbers, int rows, str program) -> ()
//
// `written` and `read` hold the slots with memory, in this order, as `tensors` does. `numbers` are the program's, or
// its first ones, and for each of the others as many as there are rows.
//
// Tensors hold what the program computes, or narrow floats if that rounds to them.
class TileKernel {
 public:
  TileKernel(kernels::Program program, size_t num_rows);

  // Takes the first three arguments from the stack, and leaves the result.
  void operator()(c10::Stack& stack) const;
  // The same for tile_update_, which returns nothing.
  void update(c10::Stack& stack) const;

 private:
  class Rows;

  void run(const Rows& rows, const std::vector<double>& numbers) const;
  std::vector<double> read_numbers(const c10::IValue& numbers, const c10::IValue& lists) const;
  std::vector<double> read_flat_numbers(const c10::IValue& numbers) const;
  std::vector<double> rounded(std::vector<double> numbers, c10::ScalarType dtype) const;
  double read_number(const c10::IValue& number, size_t index) const;

  kernels::Program program_;
  kernels::AssembledLater assembly_;
  size_t num_rows_;
  std::vector<bool> is_written_; // slots with memory
  std::vector<bool> is_checked_; // numbers
  std::vector<bool> is_negated_;
  std::vector<bool> is_rounded_; // in programs on narrow floats
};

// The program that a node names, see kernels::to_string(). Raises if the text is none.
kernels::Program parse_program(const std::string& text);

// The kernel of a node of tile_update_; null if it is none.
std::function<void(c10::Stack&)>
tile_update_kernel(const torch::jit::Node& node, const OpInfo& op, TypeGeometries& geometries);

} // namespace lazyplug
