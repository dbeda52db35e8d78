#include "torch_lazyplug/csrc/bindings.h"

PYBIND11_MODULE(_C, m) {
  m.doc() = "Bindings of libtorch_lazyplug; private to the package torch_lazyplug.";
  lazyplug::init_device_bindings(m);
  lazyplug::init_config_bindings(m);
  lazyplug::init_metrics_bindings(m);
  lazyplug::init_lazy_bindings(m);
  lazyplug::init_graph_bindings(m);
  lazyplug::init_op_bindings(m);
  lazyplug::init_optimizer_bindings(m);
  lazyplug::init_backward_bindings(m);
}
