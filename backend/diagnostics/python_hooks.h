#pragma once

#include <exception>
#include <functional>

// What the backend asks of Python, without including it. The bindings install
// the hooks; without them the backend works, and knows less.
namespace lazyplug {

struct PythonHooks {
  // The user's line as "file.py:12", interned for ever, or null.
  const char* (*find_location)() = nullptr;
  // Rethrows an error that Python raised. Such errors can be thrown only once,
  // so it throws a copy; it returns if the error is not Python's.
  void (*rethrow_copy)(const std::exception_ptr& error) = nullptr;
  // Calls the function without the GIL, whether or not this thread holds it.
  void (*without_gil)(const std::function<void()>& function) = nullptr;
};

void set_python_hooks(PythonHooks hooks);

const char* current_location();

// For everything that waits for another thread, or computes: the other thread,
// or a kernel, may need the GIL.
void without_gil(const std::function<void()>& function);

// Like std::rethrow_exception(), but works any number of times.
[[noreturn]] void rethrow(const std::exception_ptr& error);

} // namespace lazyplug
