#pragma once

#include <torch/library.h>

namespace lazyplug {

// Gives the ops of torch.distributed, c10d::allreduce_ and its like, kernels for the device, so that tensors of the
// device can be sent by any process group that can send CPU tensors. Device memory is host memory, so nothing is
// copied. What is sent is computed first; the transfer itself is asynchronous, as on the CPU.
void register_collectives(torch::Library& library);

} // namespace lazyplug
