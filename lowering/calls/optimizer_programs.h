#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Steps of optimizers as programs of lazyplug::tile_update_ (lowering/nodes/tile_kernel.h), which round as PyTorch's
// _foreach_ calls do.
namespace lazyplug {

// Those of torch.optim. Each has lists of tensors: parameters, what is said below, gradients; and numbers: those of the
// form (see UpdateForm), then those below. What stands behind a semicolon may differ from parameter to parameter.
// correction(x) is 1 - x^step.
enum class Optimizer : uint8_t {
  kAdadelta, // averages of squares, of squared changes: rho, 1 - rho, epsilon, -lr
  kAdagrad,  // sums of squares: 1, epsilon; -lr as it has decayed
  kAdam,     // averages, of squares, perhaps their maximum: 1 - beta1, beta2, 1 - beta2, epsilon;
             // sqrt(correction(beta2)), -lr / correction(beta1)
  kAdamax,   // averages, largest magnitudes: 1 - beta1, beta2, epsilon; -lr / correction(beta1)
  kNAdam,    // averages, of squares: 1 - beta1, beta2, 1 - beta2, epsilon; sqrt(correction(beta2)), what the gradient
             // is multiplied by, and the average
  kRAdam,    // averages, of squares: 1 - beta1, beta2, 1 - beta2, epsilon, 1; what the root is divided by, and what
             // is added to its reciprocal
  kRMSprop,  // averages of squares, perhaps of gradients, perhaps buffers: alpha, 1 - alpha, if it is centered
             // 1 - alpha and -1, epsilon, if there is momentum that and 1, -lr
  kSGD,      // perhaps buffers: if there are momentum, 1 - dampening, if it is Nesterov's that again, -lr
};

// Which step it is.
struct UpdateForm {
  c10::ScalarType dtype = c10::ScalarType::Float; // of the parameters: a float
  bool maximizes = false;                         // the gradient is negated first
  bool adds_weights = false;                      // a multiple of the parameters is added to the gradient: a number
  bool decays = false;                            // parameters are multiplied, apart from that: a number
  bool has_momentum = false;                      // RMSprop, SGD
  bool is_nesterov = false;                       // SGD
  bool is_centered = false;                       // RMSprop
  bool keeps_maximum = false;                     // Adam

  // Whether the gradients themselves are changed, as PyTorch does.
  bool writes_gradients() const {
    return is_nesterov && !maximizes && !adds_weights;
  }
};

struct Update {
  std::string program;
  std::vector<size_t> num_writes; // of each list with memory
};

// Whether there are some for parameters of this dtype.
bool has_updates(c10::ScalarType dtype);
// Null if the CPU's kernels do not round all elements of such parameters in the same way, see append_rounded(). From
// any thread.
const Update* update_of(Optimizer optimizer, const UpdateForm& form);

} // namespace lazyplug
