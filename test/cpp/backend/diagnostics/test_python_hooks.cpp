#include "backend/diagnostics/python_hooks.h"

#include "test/cpp/backend/backend_test.h"
#include "test/cpp/backend/test_ops.h"

#include <stdexcept>

namespace lazyplug {
namespace {

int lookups = 0;

const char* find_location() {
  ++lookups;
  return "model.py:12";
}

class PythonHooksTest : public BackendTest {
 protected:
  void TearDown() override {
    set_python_hooks({});
  }
  const at::Tensor x = to_lazy(iota({2}));
};

TEST_F(PythonHooksTest, NothingIsKnownWithoutThem) {
  EXPECT_EQ(current_location(), nullptr);
  EXPECT_THROW(rethrow(std::make_exception_ptr(std::out_of_range("ours"))), std::out_of_range);
}

TEST_F(PythonHooksTest, LocationIsKeptWithEachOpInDebugMode) {
  set_python_hooks({.find_location = find_location});
  const ScopedFlag<bool> debug(config().debug, true);
  EXPECT_EQ(std::string(current_location()), "model.py:12");
  const std::string error = error_of([&] { test_ops::fail(x).cpu(); });
  EXPECT_TRUE(contains(error, "recorded at model.py:12")) << error;
}

TEST_F(PythonHooksTest, LocationIsThatOfTheCallAndNotOfTheCompilation) {
  const ScopedFlag<bool> debug(config().debug, true);
  for (const auto finder : {+[] { return "model.py:1"; }, +[] { return "model.py:2"; }}) {
    set_python_hooks({.find_location = finder});
    const std::string error = error_of([&] { test_ops::fail(x).cpu(); });
    EXPECT_TRUE(contains(error, std::string("recorded at ") + finder())) << error;
  }
}

TEST_F(PythonHooksTest, LocationIsNotLookedForOtherwise) {
  lookups = 0;
  set_python_hooks({.find_location = find_location});
  x + x;
  EXPECT_EQ(lookups, 0);
}

TEST_F(PythonHooksTest, ErrorsOfPythonAreCopiedEachTime) {
  set_python_hooks({.rethrow_copy = [](const std::exception_ptr&) { throw std::domain_error("a copy"); }});
  const at::Tensor failed = test_ops::fail(x);
  EXPECT_THROW(failed.cpu(), std::domain_error);
  EXPECT_THROW(failed.cpu(), std::domain_error);
}

TEST_F(PythonHooksTest, OtherErrorsAreRethrown) {
  set_python_hooks({.rethrow_copy = [](const std::exception_ptr&) {}});
  EXPECT_THROW(test_ops::fail(x).cpu(), c10::IndexError);
}

} // namespace
} // namespace lazyplug
