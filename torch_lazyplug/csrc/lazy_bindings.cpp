#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/engine.h>

#include <chrono>
#include <thread>

#include "backend/api/api.h"
#include "device/fork.h"
#include "device/runtime.h"
#include "torch_lazyplug/csrc/bindings.h"

namespace lazyplug {
namespace {

using ReleaseGil = py::call_guard<py::gil_scoped_release>;

void fail_storage(const py::object& storage, const std::string& type, const std::string& message) {
  fail(THPStorage_Unpack(storage.ptr()), type, message);
}

void materialize_storage(const py::object& storage, bool for_write) {
  const c10::Storage& unpacked = THPStorage_Unpack(storage.ptr());
  const py::gil_scoped_release release;
  materialize(unpacked, for_write);
}

// Before the interpreter goes: a thread that asks for the GIL later is ended by
// force, and with it the process. Autograd's device threads ask for it when they
// let go of the last backward pass.
void shut_down() {
  if (is_initialized()) {
    torch::autograd::Engine::get_default_engine().stop();
    // stop() returns just before its threads ask for the GIL a last time.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  stop_workers();
}

} // namespace

void init_lazy_bindings(py::module& m) {
  auto lazy = m.def_submodule("_lazy", "Tracing and execution.");
  lazy.def(
      "_mark_step",
      &mark_step,
      py::arg("device") = "",
      py::arg("devices") = std::vector<std::string>(),
      py::arg("wait") = true,
      ReleaseGil());
  lazy.def("_wait_device_ops", &wait_device_ops, py::arg("devices"), ReleaseGil());
  lazy.def(
      "_sync_multi",
      [](const std::vector<at::Tensor>& tensors,
         const std::vector<std::string>& devices,
         bool wait,
         bool /*sync_ltc_data: there is no other*/) { sync_multi(tensors, devices, wait); },
      py::arg("tensors"),
      py::arg("devices"),
      py::arg("wait") = true,
      py::arg("sync_ltc_data") = true,
      ReleaseGil());
  lazy.def("_get_tensor_id", &tensor_id, ReleaseGil());
  lazy.def("_get_tensors_text", &tensors_text, ReleaseGil());
  lazy.def("_get_tensors_dot", &tensors_dot, ReleaseGil());
  lazy.def("_get_tensors_backend", &tensors_backend, ReleaseGil());
  lazy.def("_live_nodes", &live_nodes, ReleaseGil());
  lazy.def("_shut_down", &shut_down, ReleaseGil());
  // These may warn: see torch.lazy.set_sync_debug_mode.
  lazy.def("_materialize", torch::wrap_pybind_function_no_gil(py::overload_cast<const at::Tensor&>(&materialize)));
  lazy.def("_materialize_storage", torch::wrap_pybind_function(materialize_storage));
  lazy.def("_fail_storage", torch::wrap_pybind_function(fail_storage));
  lazy.def("_memory_alias", torch::wrap_pybind_function_no_gil(memory_alias));
  install_python_hooks();
}

} // namespace lazyplug
