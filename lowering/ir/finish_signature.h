#pragma once

#include "lowering/ir/signature.h"

namespace lazyplug {

// Computes what follows from the identity and the outputs: the hash, and the bytes of the outputs' storages.
void finish_signature(Signature& signature);

} // namespace lazyplug
