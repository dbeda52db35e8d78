#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/python_variable.h>

#include "device/runtime.h"
#include "torch_lazyplug/csrc/bindings.h"

// What stands between a program and autograd's engine at each backward pass, and so takes no time.
namespace lazyplug {
namespace {

// Within its scope autograd's nodes of all devices run on this thread.
class OnThisThread {
 public:
  OnThisThread() : was_enabled_(state().get_multithreading_enabled()) {
    state().set_multithreading_enabled(false);
  }
  OnThisThread(const OnThisThread&) = delete;
  OnThisThread& operator=(const OnThisThread&) = delete;
  ~OnThisThread() {
    state().set_multithreading_enabled(was_enabled_);
  }

 private:
  static c10::AutogradState& state() {
    return c10::AutogradState::get_tls_state();
  }
  const bool was_enabled_;
};

// Where a backward pass starts, which may be anything: PyTorch's engine has yet to check it.
struct Roots {
  explicit Roots(PyObject* roots) {
    const bool is_sequence = PyTuple_Check(roots) || PyList_Check(roots);
    for (Py_ssize_t i = 0; is_sequence && i < PySequence_Fast_GET_SIZE(roots); ++i) {
      PyObject* root = PySequence_Fast_GET_ITEM(roots, i);
      if (THPVariable_Check(root)) {
        // Also of tensors without a storage there, such as the wrappers of torch.func.
        const auto type = THPVariable_Unpack(root).device().type();
        any_on_device |= type == kLazyDevice;
        any_elsewhere |= type != kLazyDevice && type != c10::DeviceType::CPU;
      }
    }
  }
  bool any_on_device = false;
  bool any_elsewhere = false; // nor on the CPU
};

// `self` is a pair: the engine's method, and what says whether passes that start on the CPU run here.
PyObject* run_backward(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* const run = PyTuple_GET_ITEM(self, 0);
  const Roots roots(PyTuple_GET_SIZE(args) == 0 ? Py_None : PyTuple_GET_ITEM(args, 0));
  bool is_here = roots.any_on_device;
  if (!roots.any_on_device && !roots.any_elsewhere) {
    const auto answer = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(PyTuple_GET_ITEM(self, 1)));
    if (!answer) {
      return nullptr;
    }
    is_here = answer.is(py::handle(Py_True));
  }
  if (!is_here) {
    return PyObject_Call(run, args, kwargs);
  }
  const OnThisThread scope;
  return PyObject_Call(run, args, kwargs);
}

PyMethodDef kRunBackward = {
    "run_backward",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_backward)),
    METH_VARARGS | METH_KEYWORDS,
    "The engine's run_backward(), on the calling thread."};

py::object make_run_backward(const py::object& run, const py::object& cpu_runs_here) {
  const py::tuple self = py::make_tuple(run, cpu_runs_here);
  return py::reinterpret_steal<py::object>(PyCFunction_New(&kRunBackward, self.ptr()));
}

} // namespace

void init_backward_bindings(py::module& m) {
  m.def_submodule("_backward", "Backward passes.").def("_make_run_backward", &make_run_backward);
}

} // namespace lazyplug
