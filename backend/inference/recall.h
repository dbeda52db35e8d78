#pragma once

#include "backend/inference/shape_inference.h"

namespace lazyplug {

// Why calls run at once while runs_steps_at_once() (backend/caches/short_steps.h).
constexpr const char* kReadsOften = "its program reads a result every few ops";

// What is known of the call without asking a kernel, if anything is: its
// signature, or that it is to run at once because its sizes vary.
std::optional<Inference> recall(const Call& call);

// The same, or infers the call's shapes and remembers the answer.
Inference infer(const Call& call, const c10::Stack& stack);

} // namespace lazyplug
