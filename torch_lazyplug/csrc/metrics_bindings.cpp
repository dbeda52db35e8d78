#include "torch_lazyplug/csrc/bindings.h"

#include "common/metrics.h"

namespace lazyplug {

void init_metrics_bindings(py::module& m) {
  py::module metrics = m.def_submodule("_metrics");

  py::class_<TimerStats>(metrics, "TimerStats")
      .def_readonly("count", &TimerStats::count)
      .def_readonly("total_ns", &TimerStats::total_ns)
      .def_readonly("min_ns", &TimerStats::min_ns)
      .def_readonly("max_ns", &TimerStats::max_ns);

  metrics.def("counter_names", counter_names);
  metrics.def("counter_value", counter_value);
  metrics.def("timer_names", timer_names);
  metrics.def("timer_stats", timer_stats);
  metrics.def("metrics_report", metrics_report);
  metrics.def("short_report", short_report);
  metrics.def("reset", reset_metrics);
}

} // namespace lazyplug
