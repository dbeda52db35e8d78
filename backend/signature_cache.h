#pragma once

#include <optional>

#include "backend/call.h"
#include "lowering/signature.h"
#include "lowering/warnings.h"

namespace lazyplug {

// What the Meta kernels said about a call.
struct Inference {
  // Null if the call cannot be traced: the Meta kernel refused it, or returned
  // something other than strided tensors.
  SignaturePtr signature = nullptr;
  // What the Meta kernel raised, other than that it does not exist.
  std::exception_ptr error = nullptr;
  // An out= tensor has the wrong size, and the op would resize it. The
  // geometries of all tensor arguments after the call.
  std::vector<Geometry> resized = {};
  // The call is better run at once than recorded; if that succeeds and there is
  // a signature, remember() it. Null: it is not. The reason may be that the CPU
  // kernel refused zeros: only running the call shows whether the fault is that
  // of the zeros, or of the arguments as such.
  const char* run_now = nullptr;
  // What the kernel had to say, the first time that it is asked.
  std::vector<c10::Warning> warnings = {};
};

// Looks the call up, or asks its Meta kernels and remembers the answer.
Inference infer(const Call& call, const c10::Stack& stack);

// Calls with this key are to be recorded in this way.
void remember(const Hash128& key, const SignaturePtr& signature);

// Remembers that a kernel really returns `strides`, so that later calls with
// this signature predict them.
void learn_strides(const Signature& signature, size_t output, c10::IntArrayRef strides);

// Forgets all calls.
void clear_signatures();

} // namespace lazyplug
