#include <torch/csrc/Exceptions.h>
#include <torch/csrc/python_headers.h>

#include <frameobject.h>

#include <mutex>
#include <string>
#include <unordered_set>

#include "backend/python_hooks.h"
#include "torch_lazyplug/csrc/bindings.h"

namespace lazyplug {
namespace {

// Interned, because graphs and errors keep pointers to it.
const char* intern(std::string text) {
  static std::mutex mutex;
  static auto* texts = new std::unordered_set<std::string>();
  const std::lock_guard<std::mutex> lock(mutex);
  return texts->insert(std::move(text)).first->c_str();
}

bool is_library_file(const std::string& file) {
  return file.find("/torch/") != std::string::npos || file.find("/torch_lazyplug/") != std::string::npos ||
         file.starts_with("<");
}

std::string describe(PyFrameObject* frame) {
  const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  const auto file = py::cast<std::string>(code.attr("co_filename"));
  return file + ":" + std::to_string(PyFrame_GetLineNumber(frame));
}

// The innermost frame outside PyTorch and this package; threads without a
// Python frame, such as autograd's, have none.
const char* python_location() {
  if (!Py_IsInitialized()) {
    return nullptr;
  }
  const py::gil_scoped_acquire gil;
  auto frame =
      py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    std::string text = describe(raw);
    if (!is_library_file(text)) {
      return intern(std::move(text));
    }
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return nullptr;
}

// Leaves the error with its owner and makes it Python's current one.
void restore_copy(PyObject* type, PyObject* value, PyObject* traceback) {
  Py_XINCREF(type);
  Py_XINCREF(value);
  Py_XINCREF(traceback);
  PyErr_Restore(type, value, traceback);
}

void rethrow_copy(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const py::error_already_set& raised) {
    const py::gil_scoped_acquire gil;
    restore_copy(raised.type().ptr(), raised.value().ptr(), raised.trace().ptr());
    throw py::error_already_set();
  } catch (const python_error& raised) {
    const py::gil_scoped_acquire gil;
    restore_copy(raised.type, raised.value, raised.traceback);
    python_error copy;
    copy.persist();
    throw copy;
  } catch (...) {
    // Not Python's.
  }
}

void call_without_gil(const std::function<void()>& function) {
  if (!Py_IsInitialized() || !PyGILState_Check()) {
    return function();
  }
  const py::gil_scoped_release no_gil;
  function();
}

} // namespace

void install_python_hooks() {
  set_python_hooks({&python_location, &rethrow_copy, &call_without_gil});
}

} // namespace lazyplug
