#include "torch_lazyplug/csrc/bindings.h"

#include "device/fork.h"
#include "device/generator.h"
#include "device/memory_pools.h"
#include "device/runtime.h"
#include "device/stream.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/device_lazy_init.h>

namespace lazyplug {
namespace {

// Address, bytes and op of each block.
std::vector<std::tuple<uintptr_t, size_t, std::optional<std::string>>> live_blocks(c10::DeviceIndex device) {
  std::vector<std::tuple<uintptr_t, size_t, std::optional<std::string>>> result;
  if (const MemoryPool* pool = device_pool(device)) {
    for (const LiveBlock& block : pool->largest_live_blocks(std::numeric_limits<size_t>::max())) {
      result.emplace_back(
          reinterpret_cast<uintptr_t>(block.address),
          block.nbytes,
          block.op ? std::make_optional<std::string>(block.op) : std::nullopt);
    }
  }
  return result;
}

} // namespace

void init_device_bindings(py::module& m) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  py::module device = m.def_submodule("_device");

  device.def("init", wrap_pybind_function([] {
               ensure_initialized();
               // PyTorch keeps a flag of its own, which a forked child must not inherit.
               torch::utils::register_fork_handler_for_device_init(kLazyDevice);
             }));
  device.def("check_not_bad_fork", wrap_pybind_function(check_not_bad_fork));
  device.def("is_in_bad_fork", is_in_bad_fork);
  device.def("is_initialized", is_initialized);

  device.def("device_count", wrap_pybind_function(device_count));
  device.def("device_count_or_zero", device_count_or_zero);
  device.def("current_device", current_device);
  device.def("set_device", wrap_pybind_function(set_device));
  device.def("maybe_exchange_device", wrap_pybind_function(maybe_exchange_device));
  device.def("synchronize", wrap_pybind_function_no_gil(synchronize_device));

  device.def("current_stream", wrap_pybind_function(current_stream));
  device.def("default_stream", wrap_pybind_function(default_stream));

  device.def("set_memory_fraction", wrap_pybind_function_no_gil(set_memory_fraction));
  device.def("memory_fraction", wrap_pybind_function_no_gil(memory_fraction));
  device.def("live_blocks", wrap_pybind_function(live_blocks));

  device.def("default_generator", wrap_pybind_function([](c10::DeviceIndex index) -> at::Generator {
               return default_generator(index);
             }));
}

} // namespace lazyplug
