// How many threads a kernel uses, for one calling thread.
#pragma once

namespace lazyplug {

// Sets the number of OpenMP's and MKL's threads for what the calling thread runs from now on. Unlike
// at::set_num_threads() it leaves threads alone that start later. Returns false, and does nothing, where kernels do
// not use OpenMP.
bool set_intra_op_threads(int num_threads);

} // namespace lazyplug
