#pragma once

#include <torch/library.h>

namespace lazyplug {

// Gives the library, which is that of ATen at the key AutocastPrivateUse1, a
// kernel for every op that autocast treats on the CPU, with the CPU's policy,
// and one for LSTM layers, which are one op on the CPU only.
void register_autocast_ops(torch::Library& library);

} // namespace lazyplug
