#include "lowering/execution/verify_torchscript.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <cstring>

#include "lowering/calls/runtime_ops.h"

namespace lazyplug {
namespace {

at::Tensor copy_of(const at::Tensor& tensor) {
  const c10::Storage& memory = tensor.storage();
  const auto nbytes = static_cast<int64_t>(memory.nbytes());
  at::Tensor bytes = at::empty({nbytes}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), memory.data(), memory.nbytes());
  return make_cpu_tensor(bytes.storage(), Geometry::of(*tensor.unsafeGetTensorImpl()));
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return false;
  }
  const at::Tensor left = a.resolve_conj().resolve_neg().contiguous();
  const at::Tensor right = b.resolve_conj().resolve_neg().contiguous();
  return left.nbytes() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

// Memory that kernels leave as it is, or in part.
bool is_uninitialized(const torch::jit::Value& value) {
  static const auto lstm = c10::Symbol::fromQualString("aten::mkldnn_rnn_layer"); // its last result is a workspace
  static const auto ctc = c10::Symbol::fromQualString("aten::_ctc_loss");         // its second one is a table
  const auto kind = value.node()->kind();
  return (kind == lstm && value.offset() == 3) || (kind == ctc && value.offset() == 1);
}

} // namespace

ComputationInputs copy_inputs(const ComputationInputs& inputs) {
  ComputationInputs copies;
  copies.scalars = inputs.scalars;
  for (const at::Tensor& leaf : inputs.leaves) {
    copies.leaves.push_back(leaf.defined() ? copy_of(leaf) : leaf);
  }
  return copies;
}

void verify_torchscript(
    const std::string& text,
    ComputationInputs inputs,
    const std::vector<ComputationOutput>& outputs) {
  const auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(text, graph.get());
  c10::Stack stack(inputs.leaves.begin(), inputs.leaves.end());
  stack.insert(stack.end(), inputs.scalars.begin(), inputs.scalars.end());
  inputs = {}; // or the interpreter's references would not be the only ones
  torch::jit::InterpreterState(torch::jit::Code(graph, "verified")).run(stack);
  TORCH_INTERNAL_ASSERT(stack.size() == outputs.size(), "TorchScript returned ", stack.size(), " results");
  for (size_t i = 0; i < outputs.size(); ++i) {
    TORCH_INTERNAL_ASSERT(
        is_uninitialized(*graph->outputs()[i]) || same_bits(stack[i].toTensor(), outputs[i].tensor),
        "result ",
        i,
        " (",
        outputs[i].tensor.toString(),
        outputs[i].tensor.sizes(),
        ") has other bits on TorchScript's interpreter, of\n",
        text);
  }
}

} // namespace lazyplug
