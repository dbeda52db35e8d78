#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "common/side_tasks.h"
#include "lowering/ir/trace.h"

namespace lazyplug {

// What a computation starts from. It takes what it is given: a leaf that
// nobody else holds may be overwritten (donation).
struct ComputationInputs {
  std::vector<at::Tensor> leaves;
  std::vector<c10::IValue> scalars;
  // Empty, or for each leaf null or why its contents cannot be trusted: then it
  // is undefined, or what it was before a write to it failed.
  std::vector<std::exception_ptr> errors = {};
  bool timed = false;                  // the result says what the kernels take
  SideThreads* side_threads = nullptr; // to run some calls beside others; not if it is timed
};

// One root's result. With an error, the tensor is undefined, or, where only
// writes to it failed, what it was before them.
struct ComputationOutput {
  at::Tensor tensor;
  std::exception_ptr error;
  NodeId failed_node = Value::kNone; // the node that raised it, if it was one
};

// A kernel returned other strides than its signature promises. Whoever reads the
// result sees those that were promised; the next signature may promise these.
struct UnexpectedStrides {
  NodeId node;
  uint32_t output; // of the node
  c10::DimVector strides;
};

// What an instruction has taken; a node may have several.
struct KernelTime {
  NodeId node;
  const char* name; // of the op, or ops, that it runs; null: of none. As long as the computation is alive
  float start;      // seconds since the run began
  float seconds;
};

struct ComputationResult {
  std::vector<ComputationOutput> outputs; // one for each root
  std::vector<UnexpectedStrides> unexpected;
  std::vector<KernelTime> times; // in order, if they were asked for and no op has failed
};

// A compiled trace. Compiled once, run many times, from any thread, but by one
// thread at a time per set of inputs.
class Computation {
 public:
  virtual ~Computation() = default;

  // Runs the ops in order. An op that throws spoils what depends on it and
  // nothing else: the other ops still run. Never throws because of an op.
  virtual ComputationResult run(ComputationInputs inputs) const = 0;

  // How many ops it runs.
  virtual size_t num_ops() const = 0;

  // The program, readable.
  virtual std::string to_string() const = 0;
};

using ComputationPtr = std::shared_ptr<const Computation>;

// Compiles what `roots` depend on to a TorchScript computation that returns them.
ComputationPtr compile(const Trace& trace, c10::ArrayRef<Value> roots);

} // namespace lazyplug
