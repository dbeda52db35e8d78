#pragma once

#include <optional>

#include "lowering/ir/signature.h"

namespace lazyplug {

// How calls with this key are recorded, if that is known. Null: they cannot be.
std::optional<SignaturePtr> find_signature(const Hash128& key);

// Calls with this key are to be recorded in this way.
void remember(const Hash128& key, const SignaturePtr& signature);

// Remembers that a kernel really returns `strides`, so that later calls with
// this signature predict them. A kernel that says something else each time is no
// longer believed after the eighth.
void learn_strides(const Signature& signature, size_t output, c10::IntArrayRef strides);

// Forgets all calls.
void clear_signatures();

} // namespace lazyplug
