#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <string_view>
#include <utility>

// Steps of optimisers as one node each. PyTorch's Python code makes a dozen _foreach_ calls of a step, each with all
// parameters, and computes a few numbers for each parameter besides.
namespace lazyplug::native {

// The tensors of a step: one list for each of its roles, one tensor in it for each parameter.
using TensorLists = c10::ArrayRef<at::TensorList>;

// Numbers, and flags as 0 and 1, under torch.optim's names for them. The names must outlive this.
class StepOptions {
 public:
  void add(std::string_view name, double value) {
    values_.emplace_back(name, value);
  }
  bool has(std::string_view name) const;
  // 0 if there is none.
  double operator[](std::string_view name) const;

 private:
  const std::pair<std::string_view, double>* find(std::string_view name) const;

  c10::SmallVector<std::pair<std::string_view, double>, 20> values_;
};

// A step as torch.optim's function of this name makes it ("adadelta", "adagrad", "adam", "adamax", "nadam", "radam",
// "rmsprop", "sgd") in its `foreach` variant, from the same lists and options, and with the same bits. Sources: see the
// documentation of these classes. The lists of steps, and of NAdam's products, are numbers on the CPU, and go on.
//
// Returns false, and does nothing, unless the lists are equally long, all tensors but those numbers are of one device
// and dtype, float32 or float64, those of a parameter lie alike and without gaps, and no two share a storage; nor where
// another variant is asked for, somebody is to see the _foreach_ calls, or a number overflows or cannot be computed.
bool optimizer_step(std::string_view name, TensorLists lists, const StepOptions& options);

} // namespace lazyplug::native
