#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <vector>

#include "kernels/assembly.h"
#include "kernels/pointwise.h"
#include "lowering/fusion/pointwise_group.h"
#include "lowering/nodes/kernel.h"

namespace lazyplug {

// A pointwise tile program as graphs call it, with as many dimensions everywhere as the results have:
//
//   %c : Float(4, 8, strides=[8, 1]) = lazyplug::pointwise[program="f32 memory 3 ...", layout="4 8;8 1", dtypes="6",
//     places="0 8 1;4 0 1", depends="0 1", old="0", made_by="2 0", ops=["aten::add_.Tensor"]](%a, %b, %n)
//
// The inputs are the program's, then its numbers; the outputs are the program's. `layout` and `dtypes` say how these
// lie; `places` for each input where it begins and the stride of each dimension; `depends` for each output on which
// inputs it depends, `old` which input it replaces, or -1, and `made_by` which node of the trace it is, and which of
// the `ops`; `for_rows` lists the outputs that are one element for each row, if there are any, `windows` for each input
// which columns of the rows it has, "0 0" if all, and `literals` the last of the program's numbers, if instructions
// have such; `totals` for each output which kernels::Total it is, if some is one, and `rounded` for each number which
// narrow dtype it is rounded to first, or another dtype, if some is. TorchScript knows the op as one of any arguments.
class PointwiseKernel {
 public:
  // As the node says. What is in its way may become memory of the outputs if nobody else has it, and `may_donate`.
  PointwiseKernel(const torch::jit::Node& node, bool may_donate);

  // Takes the inputs from the stack, and leaves the outputs; undefined are those that depend on an input that is None.
  void operator()(c10::Stack& stack) const;

  const std::vector<OutputInfo>& outputs() const {
    return infos_;
  }

 private:
  struct Call;

  void find_donors();
  void read_inputs(c10::Stack& stack, Call& call) const;
  void move_inputs(const c10::IValue* offsets, Call& call) const;
  void make_outputs(Call& call) const;
  bool make_output(size_t output, Call& call) const; // false: an error has been kept
  void return_outputs(Call& call, c10::Stack& stack) const;
  at::Tensor find_donor(size_t output, const Call& call) const;
  bool is_missing(size_t output, const Call& call) const;
  void find_totals(Call& call) const;
  void keep_error(size_t output, Call& call) const; // the one that is being handled
  size_t num_outputs() const {
    return program_.num_memory - space_.num_inputs();
  }

  kernels::Program program_;
  kernels::AssembledLater assembly_;
  std::vector<Geometry> outputs_;
  kernels::PointwiseSpace space_;
  std::vector<std::optional<Geometry>> inputs_; // as their types say
  std::vector<int64_t> moving_;                 // inputs whose offsets come after the numbers
  std::vector<int64_t> literals_;               // the program's last numbers, which the node says
  std::vector<bool> is_negated_;                // numbers
  std::vector<c10::ScalarType> rounded_;        // the narrow dtypes that numbers are rounded to; empty: none is
  std::vector<kernels::Total> totals_;          // by output; empty: there are none
  Geometry layout_;                             // of what they are totals of
  std::vector<OutputInfo> infos_;
  std::vector<std::vector<size_t>> donors_; // by output: inputs whose memory it may take
};

// The attributes of its node. `outputs` are those of the group.
void set_pointwise(
    torch::jit::Node& node,
    const PointwiseGroup& group,
    const std::vector<PointwiseGroup::Output>& outputs);

} // namespace lazyplug
