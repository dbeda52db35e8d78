#pragma once

#include "lowering/computation.h"
#include "lowering/execution/instructions.h"
#include "lowering/lowering_context.h"

namespace lazyplug {

// Runs a lowered graph as a flat list of instructions over registers.
//
// Why not TorchScript's interpreter: it drops its registers when an op throws,
// and then results that do not depend on that op are lost too. The graph is
// nevertheless plain TorchScript, and says all that is to be known of it: it, or
// what is read back from its text, runs on torch::jit::Code, and here. With the
// flag `verify_torchscript` each run does (lowering/execution/verify_torchscript.h).
class TorchScriptComputation final : public Computation {
 public:
  explicit TorchScriptComputation(LoweredGraph lowered);
  TorchScriptComputation(std::shared_ptr<torch::jit::Graph> graph, const FindOp& find_op);

  ComputationResult run(ComputationInputs inputs) const override;
  size_t num_ops() const override {
    return program_.num_ops;
  }
  std::string to_string() const override;

  const std::shared_ptr<torch::jit::Graph>& graph() const {
    return graph_;
  }

 private:
  ComputationResult run_and_verify(ComputationInputs inputs) const;

  const std::shared_ptr<torch::jit::Graph> graph_;
  const Instructions program_;
};

} // namespace lazyplug
