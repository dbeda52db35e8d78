#pragma once

#include <c10/core/TensorImpl.h>

#include "lowering/ir/geometry.h"

namespace lazyplug {

// Gives a lazy tensor these sizes, strides and offset, and lets its storage
// grow where they need more. Contents stay where they are in the storage.
void resize_to(c10::TensorImpl& tensor, const Geometry& geometry);

} // namespace lazyplug
