// Ops of the tests' own, which fail, or tell how they were called.
#pragma once

#include <ATen/core/Tensor.h>

namespace lazyplug {

// How many results of lazyplug_test::watch are alive, and the most there ever were since the last reset.
struct Watched {
  static int alive();
  static int peak();
  static void reset();
};

// The dispatch keys that were excluded when lazyplug_test::keys ran last.
c10::DispatchKeySet seen_excluded_keys();

} // namespace lazyplug
