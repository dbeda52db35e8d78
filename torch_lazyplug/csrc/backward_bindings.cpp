#include <c10/core/AutogradState.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <exception>
#include <utility>

#include "backend/execution/lazy_storage.h"
#include "backend/native/backward_pass.h"
#include "common/config.h"
#include "common/metrics.h"
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

// Compiled autograd takes nodes apart.
bool is_autograd_compiled() {
  PyObject* const module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._dynamo.compiled_autograd");
  return module && py::handle(module).attr("compiled_autograd_enabled").cast<bool>();
}

// What torch.autograd.backward() and grad() give the engine: roots, their gradients, keep_graph, create_graph, inputs,
// and whether all of these need be reached, and whether gradients are accumulated.
class PassArguments {
 public:
  PassArguments(PyObject* args, PyObject* kwargs) : args_(args) {
    const Py_ssize_t size = PyTuple_GET_SIZE(args);
    PyObject* const accumulates = kwargs ? PyDict_GetItemString(kwargs, "accumulate_grad") : nullptr;
    if (size == 5 && accumulates == Py_True) {
      is_expected_ = num_inputs() == 0;
    } else if (size == 6 && accumulates == Py_False) {
      is_expected_ = num_inputs() > 0 && PyBool_Check(item(5));
    }
    is_expected_ = is_expected_ && PyTuple_Check(item(0)) && PyTuple_Check(item(1)) && PyTuple_Check(item(4)) &&
                   !elements(item(0)).empty() && elements(item(0)).size() == elements(item(1)).size() &&
                   PyBool_Check(item(2)) && PyBool_Check(item(3));
  }

  // The pass as one node; null if the engine has to run the nodes itself. What is not as expected is mostly an error,
  // and the engine's to raise.
  c10::intrusive_ptr<BackwardPass> plan() const {
    if (!config().backward_pass.get() || !is_expected_ || is_autograd_compiled()) {
      return {};
    }
    BackwardPass::Arguments pass{
        .roots = edges_of(item(0)),
        .gradients = {},
        .keep_graph = item(2) == Py_True,
        .create_graph = item(3) == Py_True,
        .inputs = edges_of(item(4))};
    for (PyObject* gradient : elements(item(1))) {
      if (!is_plain(gradient)) {
        return {};
      }
      pass.gradients.push_back(THPVariable_Unpack(gradient));
    }
    const bool all_there = pass.roots.size() == elements(item(0)).size() && pass.inputs.size() == num_inputs();
    return all_there ? BackwardPass::plan(std::move(pass)) : c10::intrusive_ptr<BackwardPass>();
  }

  // Has the engine run the pass. Returns what it would return, or null if there is an error.
  PyObject* run(PyObject* engine, const c10::intrusive_ptr<BackwardPass>& pass) const {
    {
      const py::gil_scoped_release release;
      pass->prepare_gradients();
    }
    static const auto* const number = new at::Tensor(at::zeros({}, at::kFloat));
    const at::Tensor root = number->detach();
    torch::autograd::impl::set_gradient_edge(root, {pass, pass->add_input_metadata(root)});
    const bool accumulates = num_inputs() == 0;
    const py::tuple args = py::make_tuple(
        py::make_tuple(root),
        py::make_tuple(*number),
        py::handle(item(2)),
        accumulates && item(3) == Py_True, // of which the engine warns; the pass has the flag, too
        py::tuple(),
        /*allow_unreachable=*/true,
        /*accumulate_grad=*/true);
    auto nothing = py::reinterpret_steal<py::object>(PyObject_CallObject(engine, args.ptr()));
    if (!nothing || accumulates) {
      return nothing.release().ptr();
    }
    return results(*pass);
  }

 private:
  static c10::ArrayRef<PyObject*> elements(PyObject* tuple) {
    return {&PyTuple_GET_ITEM(tuple, 0), static_cast<size_t>(PyTuple_GET_SIZE(tuple))};
  }
  PyObject* item(Py_ssize_t i) const {
    return PyTuple_GET_ITEM(args_, i);
  }
  size_t num_inputs() const {
    return PyTuple_Check(item(4)) ? elements(item(4)).size() : 0;
  }

  // Of the device itself: no subclass that sees what is done with it, and no wrapper.
  static bool is_plain(PyObject* element) {
    if (!THPVariable_Check(element)) {
      return false;
    }
    const at::Tensor& tensor = THPVariable_Unpack(element);
    return is_lazy(tensor) && !tensor.key_set().has(c10::DispatchKey::Python);
  }

  // As far as they are plain tensors that are differentiated.
  static torch::autograd::edge_list edges_of(PyObject* tensors) {
    torch::autograd::edge_list edges;
    for (PyObject* element : elements(tensors)) {
      if (!is_plain(element) || !THPVariable_Unpack(element).requires_grad()) {
        break;
      }
      edges.push_back(torch::autograd::impl::gradient_edge(THPVariable_Unpack(element)));
    }
    return edges;
  }

  PyObject* results(const BackwardPass& pass) const {
    py::tuple results(num_inputs());
    for (size_t i = 0; i < results.size(); ++i) {
      const at::Tensor& result = pass.results()[i];
      if (!result.defined() && item(5) != Py_True) {
        PyErr_Format( // as the engine has it
            PyExc_RuntimeError,
            "The differentiated Tensor at index %zu appears to not have been used in the graph. "
            "Set allow_unused=True if this is the desired behavior.",
            i);
        return nullptr;
      }
      results[i] = py::cast(result);
    }
    return results.release().ptr();
  }

  PyObject* const args_;
  bool is_expected_ = false;
};

c10::intrusive_ptr<BackwardPass> plan_pass(const PassArguments& arguments) {
  try {
    return arguments.plan();
  } catch (const std::exception&) {
    return {}; // the engine will meet the same
  }
}

// `self` is a pair: the engine's method, and what says whether passes that start on the CPU run here.
PyObject* run_backward(PyObject* self, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
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
  if (roots.any_on_device) {
    const PassArguments arguments(args, kwargs);
    if (const auto pass = plan_pass(arguments)) {
      static Counter& passes = counter("BackwardPass");
      passes.add();
      return arguments.run(run, pass);
    }
  }
  return PyObject_Call(run, args, kwargs);
  END_HANDLE_TH_ERRORS
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
  auto backward = m.def_submodule("_backward", "Backward passes.");
  backward.def("_make_run_backward", &make_run_backward);
  backward.def("_note_saved_tensors_hooks", &note_saved_tensors_hooks);
}

} // namespace lazyplug
