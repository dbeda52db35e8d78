#include "backend/diagnostics/origins.h"

#include "backend/caches/computation_cache.h"
#include "backend/diagnostics/python_hooks.h"
#include "backend/execution/lazy_storage.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

const char* line = nullptr;

class OriginsTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    PythonHooks hooks;
    hooks.find_location = [] { return line; };
    set_python_hooks(hooks);
  }
  void TearDown() override {
    set_python_hooks({});
  }
  static const char* origin(const at::Tensor& tensor) {
    return find_origin(LazyStorageImpl::of(tensor)->id());
  }
};

TEST_F(OriginsTest, AreKeptOnlyWhenDebugging) {
  line = "a.py:1";
  EXPECT_EQ(origin(to_lazy(at::ones({2}))), nullptr);
}

TEST_F(OriginsTest, AreTheLinesOfTheLastWrite) {
  const ScopedFlag<bool> debug(config().debug, true);
  line = "a.py:1";
  at::Tensor x = to_lazy(at::ones({2}));
  EXPECT_STREQ(origin(x), "a.py:1");
  line = "a.py:2";
  const at::Tensor y = x + x;
  EXPECT_STREQ(origin(y), "a.py:2");
  line = "a.py:3";
  x.add_(1);
  EXPECT_STREQ(origin(x), "a.py:3");
  y.cpu();
}

TEST_F(OriginsTest, CompiledGraphsKnowTheirs) {
  const ScopedFlag<bool> debug(config().debug, true);
  computation_cache().clear();
  line = "a.py:1";
  const at::Tensor x = to_lazy(at::ones({2}));
  line = "a.py:2";
  const at::Tensor y = x.exp();
  line = "a.py:3";
  y.cpu();
  const Provenance provenance = computation_cache().most_recent(1).at(0)->provenance;
  ASSERT_EQ(provenance.origins.size(), 1);
  EXPECT_STREQ(provenance.origins[0], "a.py:1");
  EXPECT_STREQ(provenance.cut.location, "a.py:3");
  EXPECT_STREQ(provenance.cut.cause, "copy to CPU");
}

} // namespace
} // namespace lazyplug
