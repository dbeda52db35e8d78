#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/execution/lazy_storage.h"
#include "backend/native/optimizers.h"
#include "backend/ops/borrowed_tensors.h"
#include "torch_lazyplug/csrc/bindings.h"

namespace lazyplug {
namespace {

// A program may have replaced it by something else.
bool are_on_device(const py::handle& params) {
  PyObject* list = params.ptr();
  return PyList_CheckExact(list) && PyList_GET_SIZE(list) != 0 && THPVariable_Check(PyList_GET_ITEM(list, 0)) &&
         is_lazy(THPVariable_Unpack(PyList_GET_ITEM(list, 0)));
}

// Whose items are what it holds: no class of the user's says otherwise.
bool is_plain_dict(PyObject* object) {
  return PyDict_Check(object) &&
         Py_TYPE(object)->tp_as_mapping->mp_subscript == PyDict_Type.tp_as_mapping->mp_subscript;
}

// ---- what an optimiser keeps ----

// Borrowed; null if there is no such key.
PyObject* find_item(PyObject* dict, PyObject* key) {
  PyObject* item = PyDict_GetItemWithError(dict, key);
  if (!item && PyErr_Occurred()) {
    throw py::error_already_set();
  }
  return item;
}

void append(const py::list& list, PyObject* item) {
  if (PyList_Append(list.ptr(), item) != 0) {
    throw py::error_already_set();
  }
}

// The parameters that have a gradient, the gradients, and what is kept for them.
class Group {
 public:
  Group(const py::handle& state, std::vector<py::str> names)
      : state_(state), names_(std::move(names)), kept_(names_.size()) {}

  // False if the optimiser must do something itself: make what it keeps, or refuse.
  bool add(PyObject* param) {
    if (!THPVariable_CheckExact(param)) {
      return false;
    }
    const at::Tensor& grad = THPVariable_Unpack(param).grad();
    if (!grad.defined()) {
      return true;
    }
    if (!is_lazy(grad) || grad.is_complex() || !(names_.empty() || add_kept(param))) {
      return false;
    }
    params_.push_back(param);
    grads_.push_back(py::reinterpret_steal<py::object>(THPVariable_Wrap(grad)));
    return true;
  }

  void append_to(const py::list& params, const py::list& grads, const std::vector<py::list>& kept) const {
    for (size_t i = 0; i < params_.size(); ++i) {
      append(params, params_[i]);
      append(grads, grads_[i].ptr());
      for (size_t j = 0; j < kept.size(); ++j) {
        append(kept[j], kept_[j][i]);
      }
    }
  }

 private:
  bool add_kept(PyObject* param) {
    PyObject* kept = find_item(state_.ptr(), param);
    if (!kept || !is_plain_dict(kept)) {
      return false;
    }
    for (size_t i = 0; i < names_.size(); ++i) {
      PyObject* value = find_item(kept, names_[i].ptr());
      if (!value || !THPVariable_Check(value)) {
        return false;
      }
      kept_[i].push_back(value);
    }
    return true;
  }

  const py::handle state_;
  const std::vector<py::str> names_;
  std::vector<PyObject*> params_; // borrowed from the optimiser, as what it keeps
  std::vector<py::object> grads_;
  std::vector<std::vector<PyObject*>> kept_;
};

bool read_group(
    const py::handle& group,
    const py::handle& state,
    const std::vector<py::str>& names,
    const py::list& params,
    const py::list& grads,
    const std::vector<py::list>& kept) {
  if (!are_on_device(group) || !is_plain_dict(state.ptr())) {
    return false;
  }
  Group read(state, names);
  for (const py::handle& param : group) {
    if (!read.add(param.ptr())) {
      return false;
    }
  }
  read.append_to(params, grads, kept);
  return true;
}

// ---- steps ----

// The tensors of lists, which Python keeps alive, whatever happens to the lists.
class Tensors {
 public:
  // False if there is something else among them, such as a parameter of a class of the user's, whose methods are to be
  // called.
  bool add(const py::handle& list) {
    BorrowedTensors& tensors = lists_.emplace_back();
    for (const py::handle& item : list) {
      if (!THPVariable_CheckExact(item.ptr())) {
        return false;
      }
      owners_.push_back(py::reinterpret_borrow<py::object>(item));
      tensors.add(THPVariable_Unpack(item.ptr()));
    }
    return true;
  }

  c10::SmallVector<at::TensorList, 6> lists() const {
    return {lists_.begin(), lists_.end()};
  }

 private:
  std::vector<py::object> owners_;
  std::vector<BorrowedTensors> lists_;
};

// Nothing if some are neither numbers nor None, such as tensors, which would have to be read.
std::optional<native::StepOptions> options_of(const py::dict& dict) {
  native::StepOptions options;
  for (const auto& [key, value] : dict) {
    if (value.is_none()) {
      continue;
    }
    const bool is_number =
        PyFloat_CheckExact(value.ptr()) || PyLong_CheckExact(value.ptr()) || PyBool_Check(value.ptr());
    const double number = is_number ? PyFloat_AsDouble(value.ptr()) : 0;
    if (!is_number || (number == -1 && PyErr_Occurred())) {
      PyErr_Clear();
      return std::nullopt;
    }
    Py_ssize_t length = 0;
    const char* name = PyUnicode_AsUTF8AndSize(key.ptr(), &length);
    if (!name) {
      throw py::error_already_set();
    }
    options.add({name, static_cast<size_t>(length)}, number);
  }
  return options;
}

// `dict` keeps the names alive.
bool step(std::string_view name, const py::tuple& given, const py::dict& dict) {
  if (given.empty() || !py::isinstance<py::list>(given[0]) || !are_on_device(given[0])) {
    return false;
  }
  const auto options = options_of(dict);
  Tensors tensors;
  for (const py::handle& list : given) {
    if (!options || !py::isinstance<py::list>(list) || !tensors.add(list)) {
      return false;
    }
  }
  const auto lists = tensors.lists();
  const py::gil_scoped_release release;
  return native::optimizer_step(name, lists, *options);
}

} // namespace

void init_optimizer_bindings(py::module& m) {
  auto optimizers = m.def_submodule("_optimizers", "Steps of optimisers.");
  optimizers.def("read_group", &read_group);
  optimizers.def("step", torch::wrap_pybind_function(&step));
}

} // namespace lazyplug
