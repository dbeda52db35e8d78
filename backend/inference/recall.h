#pragma once

#include "backend/inference/read_call.h"
#include "backend/inference/shape_inference.h"

namespace lazyplug {

// What is known of the call without asking a kernel, if anything is: its
// signature, or that it is to run at once because its sizes vary.
std::optional<Inference> recall(const Call& call);

// Why a plain call runs at once, if what its whole program does decides that. Null otherwise.
const char* runs_with_program(const PlainCall& call);
// Whether there may be such a call, now.
bool may_run_with_program();

// recall(), or infers the call's shapes and remembers the answer.
Inference infer(const Call& call, const c10::Stack& stack);

} // namespace lazyplug
