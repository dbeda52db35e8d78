#include "common/fail_point.h"

#include <c10/util/Exception.h>

namespace lazyplug {

void raise_injected_failure() {
  TORCH_CHECK(false, "injected failure");
}

} // namespace lazyplug
