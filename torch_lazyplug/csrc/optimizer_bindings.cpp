#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <utility>
#include <vector>

#include "backend/execution/lazy_storage.h"
#include "backend/native/optimizers.h"
#include "torch_lazyplug/csrc/bindings.h"

namespace lazyplug {
namespace {

using Tensors = std::vector<at::Tensor>;

bool are_on_device(const py::list& params) {
  return !params.empty() && THPVariable_Check(params[0].ptr()) && is_lazy(THPVariable_Unpack(params[0].ptr()));
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
  Group(const py::dict& state, std::vector<py::str> names)
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
    grads_.push_back(grad);
    return true;
  }

  void append_to(const py::list& params, const py::list& grads, const std::vector<py::list>& kept) const {
    for (size_t i = 0; i < params_.size(); ++i) {
      append(params, params_[i]);
      append(grads, py::reinterpret_steal<py::object>(THPVariable_Wrap(grads_[i])).ptr());
      for (size_t j = 0; j < kept.size(); ++j) {
        append(kept[j], kept_[j][i]);
      }
    }
  }

 private:
  bool add_kept(PyObject* param) {
    PyObject* kept = find_item(state_.ptr(), param);
    if (!kept || !PyDict_Check(kept)) {
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

  const py::dict& state_;
  const std::vector<py::str> names_;
  std::vector<PyObject*> params_; // borrowed from the optimiser, as what it keeps
  Tensors grads_;
  std::vector<std::vector<PyObject*>> kept_;
};

bool read_group(
    const py::list& group,
    const py::dict& state,
    const std::vector<py::str>& names,
    const py::list& params,
    const py::list& grads,
    const std::vector<py::list>& kept) {
  if (!are_on_device(group)) {
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

Tensors tensors_of(const py::list& list) {
  Tensors tensors;
  tensors.reserve(list.size());
  for (const py::handle& item : list) {
    TORCH_CHECK_TYPE(THPVariable_Check(item.ptr()), "a step takes lists of tensors");
    tensors.push_back(THPVariable_Unpack(item.ptr()));
  }
  return tensors;
}

bool adam(
    const py::list& params,
    const py::list& grads,
    const py::list& exp_avgs,
    const py::list& exp_avg_sqs,
    const py::list& steps,
    const native::AdamOptions& options) {
  if (!are_on_device(params)) {
    return false;
  }
  const Tensors lists[] =
      {tensors_of(params), tensors_of(grads), tensors_of(exp_avgs), tensors_of(exp_avg_sqs), tensors_of(steps)};
  const py::gil_scoped_release release;
  return native::adam_step(lists[0], lists[1], lists[2], lists[3], lists[4], options);
}

bool sgd(const py::list& params, const py::list& grads, const py::list& buffers, const native::SgdOptions& options) {
  if (!are_on_device(params)) {
    return false;
  }
  const Tensors lists[] = {tensors_of(params), tensors_of(grads), tensors_of(buffers)};
  const py::gil_scoped_release release;
  return native::sgd_step(lists[0], lists[1], lists[2], options);
}

} // namespace

void init_optimizer_bindings(py::module& m) {
  auto optimizers = m.def_submodule("_optimizers", "Steps of optimisers.");
  optimizers.def("read_group", &read_group);
  optimizers.def(
      "adam",
      torch::wrap_pybind_function([](const py::list& params,
                                     const py::list& grads,
                                     const py::list& exp_avgs,
                                     const py::list& exp_avg_sqs,
                                     const py::list& steps,
                                     double lr,
                                     double beta1,
                                     double beta2,
                                     double weight_decay,
                                     double eps,
                                     bool maximize,
                                     bool decoupled_weight_decay) {
        return adam(
            params,
            grads,
            exp_avgs,
            exp_avg_sqs,
            steps,
            {.lr = lr,
             .beta1 = beta1,
             .beta2 = beta2,
             .weight_decay = weight_decay,
             .eps = eps,
             .maximize = maximize,
             .decoupled_weight_decay = decoupled_weight_decay});
      }));
  optimizers.def(
      "sgd",
      torch::wrap_pybind_function([](const py::list& params,
                                     const py::list& grads,
                                     const py::list& buffers,
                                     double lr,
                                     double momentum,
                                     double dampening,
                                     double weight_decay,
                                     bool maximize) {
        return sgd(
            params,
            grads,
            buffers,
            {.lr = lr,
             .momentum = momentum,
             .dampening = dampening,
             .weight_decay = weight_decay,
             .maximize = maximize});
      }));
}

} // namespace lazyplug
