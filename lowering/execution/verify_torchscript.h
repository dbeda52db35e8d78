#pragma once

#include <string>
#include <vector>

#include "lowering/computation.h"

namespace lazyplug {

// Inputs with memory of their own.
ComputationInputs copy_inputs(const ComputationInputs& inputs);

// Throws if the graph with this text, read back and run on TorchScript's own interpreter with `inputs`, which it may
// overwrite, gives other results, to the bit, than `outputs`. All of these must be without errors.
void verify_torchscript(
    const std::string& text,
    ComputationInputs inputs,
    const std::vector<ComputationOutput>& outputs);

} // namespace lazyplug
