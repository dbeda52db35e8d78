// The parts of the extension module. Each init function adds one submodule: bindings, and what has to be done with
// Python's objects before C++ can take them.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace lazyplug {

// _C._device: runtime, streams, generators and fork state; see device/.
void init_device_bindings(py::module& m);

// _C._config: the flags of common/config.h.
void init_config_bindings(py::module& m);

// _C._metrics: counters and timers of common/metrics.h.
void init_metrics_bindings(py::module& m);

// _C._lazy: tracing and execution; see backend/.
void init_lazy_bindings(py::module& m);

// More of _C._lazy, and _C._lazy_ts_backend: looking at graphs and running them
// again. Names are those of torch._C._lazy.
void init_graph_bindings(py::module& m);

// _C._ops: what is known of ops; see backend/ops/op_registry.h and backend/recording/changing_ops.h.
void init_op_bindings(py::module& m);

// _C._optimizers: steps of optimisers; see backend/native/optimizers.h.
void init_optimizer_bindings(py::module& m);

// _C._backward: which thread runs a backward pass.
void init_backward_bindings(py::module& m);

// Lets the backend name the user's Python lines, and raise Python's errors again.
void install_python_hooks();

} // namespace lazyplug
