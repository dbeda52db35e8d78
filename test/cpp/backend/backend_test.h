// What the tests of the backend share: an idle device with fresh counters, and short names.
//
// Without Python only those Meta kernels exist that are written in C++ (add, mul, mm, sum, cat, ...). The tests record
// these; an op without one, such as relu, serves as one that falls back.
#pragma once

#include "backend/caches/computation_cache.h"
#include "backend/execution/device_context.h"
#include "backend/execution/lazy_storage.h"
#include "common/config.h"
#include "common/metrics.h"
#include "device/runtime.h"
#include "test/cpp/common/scoped_flag.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lazyplug {

using State = LazyStorageImpl::State;

inline LazyStorageImpl& storage_of(const at::Tensor& tensor) {
  return *LazyStorageImpl::of(tensor);
}

inline State state_of(const at::Tensor& tensor) {
  return DeviceContext::state_of(storage_of(tensor));
}

inline int64_t count(const char* name) {
  return counter_value(name).value_or(0);
}

inline at::Tensor to_lazy(const at::Tensor& tensor, c10::DeviceIndex index = 0) {
  return tensor.to(lazy_device(index));
}
inline std::vector<at::Tensor> to_lazy(std::vector<at::Tensor> tensors) {
  for (at::Tensor& tensor : tensors) {
    tensor = to_lazy(tensor);
  }
  return tensors;
}

inline at::TensorOptions on_lazy(at::ScalarType dtype = at::kFloat) {
  return at::TensorOptions(lazy_device(0)).dtype(dtype);
}

inline at::Tensor iota(c10::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).view(sizes).clone();
}

// "none", or what the call raised.
template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Collects the warnings of its scope.
class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    messages.push_back(warning.msg());
  }
  std::vector<std::string> messages;

 private:
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

class BackendTest : public testing::Test {
 protected:
  void SetUp() override {
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
      error_of([&] { DeviceContext::get(i).synchronize(); }); // an error that a test left behind
    }
    reset_metrics();
  }

  DeviceContext& context_ = DeviceContext::get(0);
  const ScopedFlag<std::string> quiet_{config().fallback, "silent"};
  const ScopedFlag<bool> verified_{config().verify_ir, true};
  const ScopedFlag<int64_t> cpus_functions_{config().fusion, 1}; // whose bits are compared
};

inline void expect_equal(const at::Tensor& lazy, const at::Tensor& expected) {
  const at::Tensor actual = lazy.cpu();
  EXPECT_EQ(actual.dtype(), expected.dtype());
  ASSERT_EQ(actual.sizes(), expected.sizes());
  EXPECT_TRUE(at::allclose(actual, expected, 1e-5, 1e-6, /*equal_nan=*/true)) << actual << "\ninstead of\n" << expected;
}

} // namespace lazyplug
