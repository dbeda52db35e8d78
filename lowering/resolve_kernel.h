#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <exception>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lowering/ir/op_info.h"
#include "lowering/node_attributes.h"

namespace lazyplug {

// Of an output of a kernel that stands for several calls: the inputs that it depends on, the one that it replaces, or
// -1, and the call that makes it.
struct OutputInfo {
  std::vector<bool> inputs;
  int64_t old = -1;
  NodeId node = 0; // of the trace
  std::string op;
};

// Some outputs could not be made: an exception for each that could not. All are on the stack.
struct OutputErrors : std::exception {
  explicit OutputErrors(std::vector<std::exception_ptr> errors) : errors(std::move(errors)) {}
  const char* what() const noexcept override {
    return "some outputs could not be made";
  }
  std::vector<std::exception_ptr> errors;
};

// How a node is run: `run` takes the first `num_inputs` inputs from the stack and leaves the outputs there; the other
// inputs are constants that it knows. `run_into`, if there is one, takes a destination after the inputs, a tensor that
// lies as the only output is to lie, and returns that; it may be one of the inputs.
struct Kernel {
  std::function<void(c10::Stack&)> run;
  size_t num_inputs = 0;
  std::function<void(c10::Stack&)> run_into = nullptr;
  // Empty: each output depends on all inputs. Otherwise the kernel takes None for inputs that are missing, and what
  // depends on these is undefined; and it may raise OutputErrors.
  std::vector<OutputInfo> outputs = {};
};

// The name of an op: "aten::add", interned, and its overload.
struct OpKey {
  c10::Symbol base;
  std::string overload;
  bool operator==(const OpKey&) const = default;
};
struct OpKeyHash {
  size_t operator()(const OpKey& key) const {
    return static_cast<size_t>(static_cast<c10::unique_t>(key.base)) * 31 + std::hash<std::string>()(key.overload);
  }
};
using OpsByName = std::unordered_map<OpKey, const OpInfo*, OpKeyHash>;
using FindOp = std::function<const OpInfo&(const OpKey&)>;

// The kernel of a node that is no constant, from what stands in the node alone. It lives no longer than `geometries`.
// `op` becomes the op that it calls, or null if it is one of the runtime's own (lowering/runtime_ops.h).
Kernel
resolve_kernel(const torch::jit::Node& node, const FindOp& find_op, TypeGeometries& geometries, const OpInfo*& op);

} // namespace lazyplug
