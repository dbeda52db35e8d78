#pragma once

#include "lowering/computation.h"
#include "lowering/execution/instructions.h"

namespace lazyplug {

// Runs each instruction once, in order; see Computation::run().
ComputationResult run_instructions(const Instructions& program, ComputationInputs inputs);

} // namespace lazyplug
