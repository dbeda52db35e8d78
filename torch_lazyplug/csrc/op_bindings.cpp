#include <torch/csrc/Exceptions.h>

#include "backend/ops/op_registry.h"
#include "backend/recording/changing_ops.h"
#include "torch_lazyplug/csrc/bindings.h"

namespace lazyplug {

void init_op_bindings(py::module& m) {
  auto ops = m.def_submodule("_ops", "What is known of ops.");
  ops.def("finish_before_setting", torch::wrap_pybind_function_no_gil(finish_before_setting));
  ops.def("finish_calls_of", torch::wrap_pybind_function_no_gil(finish_calls_of));
  ops.def("declare_numbers_inputs", torch::wrap_pybind_function(declare_numbers_inputs));
  ops.def("note_new_kernels", torch::wrap_pybind_function_no_gil(note_new_kernels));
}

} // namespace lazyplug
