#pragma once

#include <ATen/core/stack.h>

#include "backend/inference/read_call.h"
#include "lowering/ir/signature.h"

namespace lazyplug {

// The signature of a call whose arguments are on `stack`, from what a kernel of
// `device` returned for stand-ins of them. Null if a return is not a strided
// tensor of that device. What warns is not predicted, for it warns each time.
c10::intrusive_ptr<Signature> make_signature(
    const Call& call,
    const c10::Stack& stack,
    const c10::Stack& results,
    c10::DeviceType device,
    bool is_silent);

} // namespace lazyplug
