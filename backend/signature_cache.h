#pragma once

#include "backend/shape_inference.h"

namespace lazyplug {

// What is known of the call without asking a kernel, if anything is: its
// signature, or that it is to run at once because its sizes vary.
std::optional<Inference> recall(const Call& call);

// The same, or infers the call's shapes and remembers the answer.
Inference infer(const Call& call, const c10::Stack& stack);

// Calls with this key are to be recorded in this way.
void remember(const Hash128& key, const SignaturePtr& signature);

// Remembers that a kernel really returns `strides`, so that later calls with
// this signature predict them. A kernel that says something else each time is no
// longer believed after the eighth.
void learn_strides(const Signature& signature, size_t output, c10::IntArrayRef strides);

// Forgets all calls.
void clear_signatures();

} // namespace lazyplug
