#pragma once

#include <ATen/core/stack.h>

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "lowering/ir/trace.h"

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

} // namespace lazyplug
