#include "backend/diagnostics/python_hooks.h"

namespace lazyplug {
namespace {
PythonHooks python_hooks; // set while the extension is loaded, then read only
} // namespace

void set_python_hooks(PythonHooks hooks) {
  python_hooks = hooks;
}

const char* current_location() {
  return python_hooks.find_location ? python_hooks.find_location() : nullptr;
}

void without_gil(const std::function<void()>& function) {
  python_hooks.without_gil ? python_hooks.without_gil(function) : function();
}

void rethrow(const std::exception_ptr& error) {
  if (python_hooks.rethrow_copy) {
    python_hooks.rethrow_copy(error);
  }
  std::rethrow_exception(error);
}

} // namespace lazyplug
