#pragma once

#include <cstddef>
#include <string>
#include <vector>

// Steps of optimizers as programs of lazyplug::tile_update_ (lowering/tile_kernel.h), which round as PyTorch's
// _foreach_ calls do.
namespace lazyplug {

// Which step it is.
struct UpdateForm {
  bool is_double = false;    // of float64 parameters, else float32
  bool maximizes = false;    // the gradient is negated first
  bool adds_weights = false; // a multiple of the parameters is added to the gradient
  bool decays = false;       // parameters are multiplied, apart from that (Adam only)
  bool has_momentum = false; // SGD only
};

struct Update {
  std::string program;
  std::vector<size_t> num_writes; // of each list with memory
};

// Lists: parameters, averages of gradients, and of their squares, which are written; gradients. Numbers, where the form
// has them: the multiple of weights, the factor of the decay; 1 - beta1, beta2, 1 - beta2, epsilon; then what may
// differ from parameter to parameter: the square root of the second correction, and the size of the step, negative.
const Update& adam_update(UpdateForm form);

// Lists: parameters, buffers if there is momentum, which are written; gradients. Numbers: the multiple of weights, if
// the form has it; momentum and 1 - dampening, likewise; the learning rate, negative.
const Update& sgd_update(UpdateForm form);

} // namespace lazyplug
