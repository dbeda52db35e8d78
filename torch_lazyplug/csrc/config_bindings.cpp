#include "torch_lazyplug/csrc/bindings.h"

#include "common/config.h"

#include <torch/csrc/Exceptions.h>

namespace lazyplug {
namespace {

// The value as bool, int or str.
py::object value_of(const FlagBase& flag) {
  if (const auto* as_bool = dynamic_cast<const Flag<bool>*>(&flag)) {
    return py::cast(as_bool->get());
  }
  if (const auto* as_int = dynamic_cast<const Flag<int64_t>*>(&flag)) {
    return py::cast(as_int->get());
  }
  return py::cast(flag.get_string());
}

std::vector<std::string> flag_names() {
  std::vector<std::string> names;
  for (const FlagBase* flag : config().flags()) {
    names.push_back(flag->name());
  }
  return names;
}

} // namespace

void init_config_bindings(py::module& m) {
  using torch::wrap_pybind_function;
  py::module flags = m.def_submodule("_config");

  flags.def("names", wrap_pybind_function(flag_names));
  flags.def("get", wrap_pybind_function([](const std::string& name) { return value_of(config().flag(name)); }));
  flags.def("set", wrap_pybind_function([](const std::string& name, const std::string& text) {
              config().flag(name).set_string(text);
            }));
  flags.def("doc", wrap_pybind_function([](const std::string& name) { return config().flag(name).doc(); }));
  flags.def("env", wrap_pybind_function([](const std::string& name) { return config().flag(name).env(); }));
}

} // namespace lazyplug
