#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/util/ArrayRef.h>

// Steps of optimisers as one node each. PyTorch's Python code makes a dozen _foreach_ calls of a step, each with all
// parameters, and computes a few numbers for each parameter besides.
namespace lazyplug::native {

// The tensors of a step: one list for each of its roles, one tensor in it for each parameter.
using TensorLists = c10::ArrayRef<at::TensorList>;

// What torch.optim calls these.
struct AdamOptions {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double weight_decay = 0;
  double eps = 0;
  bool maximize = false;
  bool decoupled_weight_decay = false;
};
struct SgdOptions {
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool maximize = false;
};

// A step of torch.optim.Adam or AdamW, as its `foreach` variant makes it, and with the same bits: Kingma and Ba, Adam;
// Loshchilov and Hutter, Decoupled Weight Decay Regularization. `steps` are numbers on the CPU, and count up.
//
// These return false, and do nothing, unless the lists are equally long, all tensors but `steps` are of one device and
// dtype, float32 or float64, those of a parameter lie alike and without gaps, and no two share a storage; nor where
// somebody is to see the _foreach_ calls, or a number overflows.
bool adam_step(
    at::TensorList params,
    at::TensorList grads,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList steps,
    const AdamOptions& options);

// A step of torch.optim.SGD, likewise, but for Nesterov's. Without momentum there are no buffers.
bool sgd_step(at::TensorList params, at::TensorList grads, at::TensorList buffers, const SgdOptions& options);

} // namespace lazyplug::native
