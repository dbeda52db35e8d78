// What the tests of inferred signatures share: no call is known.
#pragma once

#include "backend/caches/signature_cache.h"
#include "backend/inference/read_call.h"
#include "backend/inference/recall.h"
#include "backend/ops/op_registry.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {

class InferTest : public BackendTest {
 protected:
  InferTest() {
    clear_signatures();
  }

  Inference infer_call(const char* name, const char* overload, const c10::Stack& stack) {
    return infer(read_call(op_info(name, overload), stack), stack);
  }

  at::Tensor lazy(c10::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
    return at::empty(sizes, on_lazy(dtype));
  }
};

} // namespace lazyplug
