#include "lowering/execution/torchscript_computation.h"

#include <algorithm>

#include "common/config.h"
#include "common/metrics.h"
#include "lowering/execution/execution_guard.h"
#include "lowering/execution/instruction_run.h"
#include "lowering/execution/verify_torchscript.h"
#include "lowering/execution/warnings.h"
#include "lowering/nodes/node_attributes.h"
#include "lowering/passes/pass.h"

namespace lazyplug {
namespace {

FindOp find_among(const OpsByName& ops) {
  return [&ops](const OpKey& name) -> const OpInfo& { return *ops.at(name); };
}

} // namespace

TorchScriptComputation::TorchScriptComputation(LoweredGraph lowered)
    : graph_(std::move(lowered.graph)),
      program_(make_instructions(*graph_, find_among(lowered.ops), lowered.checked)) {}

TorchScriptComputation::TorchScriptComputation(std::shared_ptr<torch::jit::Graph> graph, const FindOp& find_op)
    : graph_(std::move(graph)), program_(make_instructions(*graph_, find_op, {})) {}

ComputationResult TorchScriptComputation::run(ComputationInputs inputs) const {
  const ExecutionGuard guard;
  const ShownWarningsMuted muted;
  return config().verify_torchscript.get() ? run_and_verify(std::move(inputs))
                                           : run_instructions(program_, std::move(inputs));
}

// TorchScript's interpreter knows nothing of errors that spoil a part of the results, nor of promises.
ComputationResult TorchScriptComputation::run_and_verify(ComputationInputs inputs) const {
  static Counter& verified = counter("TorchScriptVerified");
  ComputationInputs copies = copy_inputs(inputs);
  ComputationResult result = run_instructions(program_, std::move(inputs));
  const bool has_failed =
      std::any_of(result.outputs.begin(), result.outputs.end(), [](const ComputationOutput& output) {
        return output.error || !output.tensor.defined();
      });
  if (!has_failed && result.unexpected.empty()) {
    verify_torchscript(to_string(), std::move(copies), result.outputs);
    verified.add();
  }
  return result;
}

std::string TorchScriptComputation::to_string() const {
  return text_of(*graph_);
}

ComputationPtr compile(const Trace& trace, c10::ArrayRef<Value> roots) {
  static Timer& time = timer("CompileTime");
  const TimerScope scope(time);
  Graph graph(trace, roots);
  run_passes(graph);
  return std::make_shared<TorchScriptComputation>(LoweringContext(graph).lower());
}

} // namespace lazyplug
