#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "backend/api/api.h"
#include "backend/api/cached_run.h"
#include "backend/caches/recompiles.h"
#include "backend/diagnostics/journal.h"
#include "backend/diagnostics/python_hooks.h"
#include "backend/recording/force_fallback.h"
#include "common/config.h"
#include "common/metrics.h"
#include "device/generator.h"
#include "torch_lazyplug/csrc/bindings.h"

namespace lazyplug {
namespace {

using torch::wrap_pybind_function;
using torch::wrap_pybind_function_no_gil;

c10::IValue from_python(const py::handle& value);

c10::IValue list_from_python(const py::handle& list) {
  c10::impl::GenericList numbers(c10::NumberType::get());
  for (const py::handle& item : list) {
    const c10::IValue number = from_python(item);
    TORCH_CHECK_TYPE(number.isScalar(), "a graph takes lists of numbers, got one with a ", number.tagKind());
    numbers.push_back(number);
  }
  return numbers;
}

c10::IValue from_python(const py::handle& value) {
  if (THPVariable_Check(value.ptr())) {
    return THPVariable_Unpack(value.ptr());
  }
  if (py::isinstance<py::bool_>(value)) {
    return value.cast<bool>();
  }
  if (py::isinstance<py::int_>(value)) {
    return value.cast<int64_t>();
  }
  if (py::isinstance<py::float_>(value)) {
    return value.cast<double>();
  }
  if (py::isinstance<py::list>(value)) {
    return list_from_python(value);
  }
  TORCH_CHECK_TYPE(
      PyComplex_Check(value.ptr()),
      "a graph takes tensors, numbers and lists of numbers, got ",
      py::str(py::type::of(value)).cast<std::string>());
  return value.cast<c10::complex<double>>();
}

py::object to_python(const c10::IValue& value) {
  if (value.isTensor()) {
    return py::cast(value.toTensor());
  }
  if (value.isList()) {
    py::list numbers;
    for (const c10::IValue& number : value.toListRef()) {
      numbers.append(to_python(number));
    }
    return numbers;
  }
  return py::cast(value.toScalar());
}

std::vector<at::Tensor> run(const CachedComputation& graph, const py::sequence& inputs) {
  std::vector<c10::IValue> values;
  for (const py::handle& input : inputs) {
    values.push_back(from_python(input));
  }
  const py::gil_scoped_release release;
  return run_graph(graph, std::move(values));
}

py::tuple device_data_nodes(const std::vector<at::Tensor>& tensors) {
  GraphInputs inputs;
  {
    const py::gil_scoped_release release;
    inputs = graph_inputs(tensors);
  }
  py::list values;
  for (const c10::IValue& value : inputs.values) {
    values.append(to_python(value));
  }
  return py::make_tuple(inputs.tensor_ids, values);
}

py::list ops_as_tuples(const std::vector<JournalOp>& ops) {
  py::list tuples;
  for (const JournalOp& op : ops) {
    tuples.append(py::make_tuple(op.name, op.location ? op.location : "", op.seconds));
  }
  return tuples;
}

py::list journal_as_dicts() {
  py::list entries;
  for (const JournalEntry& entry : journal()) {
    py::dict fields;
    fields["kind"] = to_string(entry.kind);
    fields["cause"] = entry.cause;
    fields["detail"] = entry.detail;
    fields["location"] = entry.location ? entry.location : "";
    fields["start_ns"] = entry.start_ns;
    fields["duration_ns"] = entry.duration_ns;
    fields["bytes"] = entry.bytes;
    fields["trace"] = entry.trace;
    fields["thread"] = entry.thread;
    fields["allocated"] = entry.allocated;
    fields["ops"] = ops_as_tuples(entry.ops);
    entries.append(fields);
  }
  return entries;
}

void bind_settings(py::module& lazy) {
  lazy.def("_get_force_fallback", [] { return config().force_fallback.get(); });
  lazy.def("_set_force_fallback", wrap_pybind_function([](const std::string& ops) {
             config().force_fallback.set(ops);
             read_forced_ops();
           }));
  lazy.def("_get_reuse_ir", [] { return config().reuse_ir.get(); });
  lazy.def("_set_reuse_ir", [](bool enabled) { config().reuse_ir.set(enabled); });
  lazy.def("_get_symbolic_shape_mode", [] { return config().symbolic_shape_mode.get(); });
  lazy.def("_set_symbolic_shape_mode", [](bool enabled) { config().symbolic_shape_mode.set(enabled); });
  lazy.def("_get_default_device_type", [] { return "lazy"; });
}

void bind_metrics(py::module& lazy) {
  lazy.def("_reset_metrics", reset_metrics);
  lazy.def("_counter_names", counter_names);
  lazy.def("_counter_value", counter_value);
  lazy.def("_metrics_report", metrics_report);
  lazy.def("_journal", journal_as_dicts);
  lazy.def("_clear_journal", clear_journal);
  lazy.def("_note_step", [](const std::string& cause) {
    if (config().debug.get()) {
      add_to_journal({.kind = JournalKind::kStep, .cause = cause, .location = current_location()});
    }
  });
  lazy.def("_current_location", current_location);
  lazy.def("_origin_of", &origin_of);
  lazy.def("_explain_recompile", explain_recompile);
}

} // namespace

void init_graph_bindings(py::module& m) {
  auto lazy = m.def_submodule("_lazy");
  bind_settings(lazy);
  bind_metrics(lazy);
  lazy.def("_clear_ir_cache", wrap_pybind_function_no_gil(clear_graphs));
  lazy.def("_dump_ir_cache", wrap_pybind_function_no_gil(dump_graphs));
  lazy.def("_latest_graph_dot", wrap_pybind_function_no_gil(latest_graph_dot));
  lazy.def("_is_pending", wrap_pybind_function_no_gil(is_pending));
  lazy.def("_is_ready", wrap_pybind_function_no_gil(is_ready));
  lazy.def("_get_graph_hash", wrap_pybind_function([](const std::vector<at::Tensor>& tensors) {
             return py::bytes([&] {
               const py::gil_scoped_release release;
               return to_bytes(graph_of(tensors)->hash);
             }());
           }));

  auto ts_backend = m.def_submodule("_lazy_ts_backend", "Running compiled graphs again.");
  py::class_<CachedComputation, std::shared_ptr<CachedComputation>>(ts_backend, "CachedComputation")
      .def("run", wrap_pybind_function(run));
  ts_backend.def("_init", [] {});
  ts_backend.def("_get_tensors_ts_device_data_node", wrap_pybind_function(device_data_nodes));
  ts_backend.def("_run_cached_graph", wrap_pybind_function([](const std::string& hash, const py::sequence& inputs) {
                   return run(*find_graph(hash_from_bytes(hash)), inputs);
                 }));
  ts_backend.def("_get_cached_graph", wrap_pybind_function([](const std::string& hash) {
                   return std::const_pointer_cast<CachedComputation>(find_graph(hash_from_bytes(hash)));
                 }));
  ts_backend.def("_get_latest_computation_graph", wrap_pybind_function_no_gil(latest_graph_text));
  ts_backend.def("_next_seed", wrap_pybind_function_no_gil([](c10::DeviceIndex device) {
                   return static_cast<int64_t>(next_seed(std::nullopt, device));
                 }));
}

} // namespace lazyplug
