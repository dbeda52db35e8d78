#include <torch/csrc/python_headers.h>

#include <frameobject.h>

#include <mutex>
#include <string>
#include <unordered_set>

#include "backend/source_location.h"
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

} // namespace

void install_location_finder() {
  set_location_finder(&python_location);
}

} // namespace lazyplug
