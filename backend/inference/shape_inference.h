#pragma once

#include <ATen/core/stack.h>

#include "backend/inference/read_call.h"
#include "lowering/execution/warnings.h"
#include "lowering/ir/signature.h"

namespace lazyplug {

// What is known about the results of a call before it has run.
struct Inference {
  // Null if the call cannot be traced: the kernel that was asked refused it, or
  // returned something other than strided tensors.
  SignaturePtr signature = nullptr;
  // What that kernel raised, other than that it does not exist.
  std::exception_ptr error = nullptr;
  // An out= tensor has the wrong size, and the op would resize it. The
  // geometries of all tensor arguments after the call.
  std::vector<Geometry> resized = {};
  // The call is better run at once than recorded; if that succeeds and there is
  // a signature, remember() it. Null: it is not. The reason may be that the CPU
  // kernel refused zeros: only running the call shows whether the fault is that
  // of the zeros, or of the arguments as such.
  const char* run_now = nullptr;
  // Then what the call returns is to be remembered, as signature_of() it.
  bool learn = false;
  // If that succeeds, accept_dtypes() of this key.
  Hash128 trial = {};
  // What the kernel had to say, the first time that it is asked.
  std::vector<c10::Warning> warnings = {};
};

// Asks a kernel of the op what the call returns: the CPU's, on zeros, if the call
// is small, or a Meta kernel. Raises if the call writes memory that its arguments
// share in a way that the op refuses.
Inference infer_shapes(const Call& call, const c10::Stack& stack);

// The signature of a call, from what it has returned to the program; null if it
// does not hold for the next such call. `arguments` are those of the call, which
// `results` have replaced on the stack.
SignaturePtr signature_of(const Call& call, const c10::Stack& arguments, const c10::Stack& results);

} // namespace lazyplug
