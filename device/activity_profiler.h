#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

// Kernels for torch.profiler, which shows them as the device's: in rows of its table, and in its traces.
namespace lazyplug {

struct ProfiledKernel {
  std::string name;
  int64_t start_ns; // as c10::getTime() counts
  int64_t duration_ns;
};

// Whether a profile is being taken that includes the device. Kernels are timed only then.
bool is_profiling();

// Kernels that this thread has run for the device; forgotten if no profile is being taken.
void add_profiled_kernels(c10::DeviceIndex device, std::vector<ProfiledKernel> kernels);

} // namespace lazyplug
