#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string_view>

#include "kernels/pointwise.h"
#include "kernels/tile_program.h"
#include "lowering/ir/op_info.h"
#include "lowering/ir/signature.h"

namespace lazyplug {

// How an instruction of a tile program computes an op, or its variant that writes its first argument. For each argument
// of the op, in order:
//   t  a tensor: the instruction's next input
//   n  a number: the next input, too
//   s  a number: the instruction's own
//   p  a number that says which instruction it is
//   e  the number 2
//   c  a correction of 0 or 1, or none, which is 1: see correction()
//   d  a dimension, or several: the last one
//   k  whether they stay
//   f  a flag: it is not set
//   y  a dtype: that of the call
//   z  sizes: of the last dimension
//   o  a tensor like a row, or none
//   l  a list of tensors: the next input of a program for each of them, see ForeachGroup
//   .  a tensor that is not read
//   -  a constant, which decides nothing but how the result lies
struct PointwiseOp {
  enum class Kind : uint8_t {
    kComputes, // in the dtype of its result
    kSwapped,  // the same, with its two inputs in the other order
    kMasked,   // the same, with the first input behind the others
    kCompares, // the result is Bool
    kLogic,    // so are the operands, which a group computes in its own dtype, as 0 and 1
    kBits,     // likewise; or of integers, bit by bit: see bitwise_opcode()
    kIntegers, // computes, but not floats
    kReduces,  // the last dimension: see PointwiseGroup
    kTotals,   // of all elements: see PointwiseGroup
    kPower,    // the number says which instruction it is: see power_opcode()
    kFunction, // a function of this package's own, see find_function()
  };
  enum class Narrow : uint8_t { kBoth, kHalf, kNone };
  // On which processors a function is no slower than PyTorch's.
  enum class Quicker : uint8_t { kAnywhere, kAvx512ButIntel };
  const char* base; // "aten::add"
  const char* overload;
  kernels::Opcode opcode;
  const char* args;
  Kind kind = Kind::kComputes;
  const char* variant = nullptr; // what a string among the arguments must say
  Quicker quicker = Quicker::kAnywhere;
  Narrow narrow = Narrow::kBoth; // a function, of these 16-bit floats, too
  // Of a function of rows: how long they may be.
  int64_t min_row = 0;
  int64_t max_row = 0;

  bool is_function() const {
    return kind == Kind::kFunction || max_row != 0;
  }
  // Several instructions make three results: see lowering/fusion/layer_norm.h.
  bool is_layer_norm() const {
    return opcode == kernels::Opcode::kNormalize;
  }
};

// Whether a constant argument says what its row in the table expects, for a result of this dtype and these sizes.
bool is_expected(const c10::IValue& constant, char arg, c10::ScalarType dtype, c10::IntArrayRef sizes);

// How powers with this exponent are computed; nothing if by the CPU's kernel alone.
std::optional<kernels::Opcode> power_opcode(const c10::IValue& exponent);

// What the number of elements is lessened by where a variance is divided by it; nothing if that is not computed here.
std::optional<int64_t> correction(const c10::IValue& argument);

// How the op of a row of Kind::kBits is computed of integers.
kernels::Opcode bitwise_opcode(const PointwiseOp& op);

// The first row in the table; null if there is none. Only ops that the CPU's kernels compute with elementary
// operations, so that the results are the same to the bit, in whatever groups.
const PointwiseOp* find_pointwise_op(const OpInfo& op);
// The one for a call whose numbers are these: some may be missing.
const PointwiseOp* find_pointwise_op(const OpInfo& op, c10::ArrayRef<ArgBinding> args);

// Functions such as exp, which this package computes otherwise than the CPU's kernels do (docs/accuracy.md). So that
// the bits do not depend on what shares a kernel, such a call is computed here wherever it runs, alone or not, or
// nowhere: if it returns its result anew and all of its tensors have its dtype, see takes_dtype(), and lie as the
// result does, without gaps (what the strides of dimensions of one element are, does not matter); or as parts of its
// rows, see takes_part(). Of 16-bit floats, what is computed in float32 is rounded once, as PyTorch's kernels do it.
// Those of rows also want the tensors to be contiguous, and the rows to be as long as takes_rows() says; beside them,
// there may be tensors that are one row.
// There are none where PyTorch uses neither AVX2 nor AVX-512.
bool has_functions();
bool computes_functions(); // whether the flag `fusion` asks for it
bool is_function(const OpInfo& op);
// The row; null if there is none. `variant` is what the string among the arguments says, if there is one.
const PointwiseOp* find_function(const OpInfo& op, std::string_view variant);
bool takes_dtype(const PointwiseOp& function, c10::ScalarType dtype);
// Of numbers one beside the other, or apart, as they stand there.
bool is_plain(const at::Tensor& tensor);
bool is_plain_float(const at::Tensor& tensor); // of float32
// Whether they lie as contiguous() makes them, wherever dimensions of one element stand.
bool are_rows_without_gaps(c10::IntArrayRef sizes, c10::IntArrayRef strides);
// Whether a function takes tensors that lie so; all of them, if it is none of rows.
bool takes_rows(const PointwiseOp& function, c10::IntArrayRef sizes, c10::IntArrayRef strides);
// Whether a function, unless it is one of rows or of lists, takes a tensor that lies so, as columns of a matrix do,
// beside others that lie so, too, or are contiguous; so is the result.
bool takes_part(const PointwiseOp& function, c10::IntArrayRef sizes, c10::IntArrayRef strides);

// Whether a group gathers an input in so many short pieces, each of which takes some 12 ns, that it takes longer than
// all that a group saves. The sizes and strides are those of the group.
bool is_torn(c10::IntArrayRef sizes, c10::IntArrayRef strides, const kernels::PointwiseSpace::Input& input);

} // namespace lazyplug
