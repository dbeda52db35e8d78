#include "lowering/execution/execution_guard.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

namespace lazyplug {
namespace {

TEST(ExecutionGuard, NothingIsDifferentiated) {
  const at::Tensor x = at::ones({2}).requires_grad_();
  {
    const ExecutionGuard guard;
    EXPECT_FALSE((x * 2).requires_grad());
  }
  EXPECT_TRUE((x * 2).requires_grad());
}

TEST(ExecutionGuard, WritesAreNobodysBusiness) {
  at::Tensor x = at::ones({2});
  const int64_t version = x._version();
  {
    const ExecutionGuard guard;
    x.add_(1);
  }
  EXPECT_EQ(x._version(), version);
  EXPECT_TRUE(at::equal(x, at::full({2}, 2.F)));
}

TEST(ExecutionGuard, NothingIsCast) {
  const at::Tensor x = at::ones({2, 2});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  EXPECT_EQ(at::mm(x, x).dtype(), at::autocast::get_autocast_dtype(at::kCPU));
  {
    const ExecutionGuard guard;
    EXPECT_EQ(at::mm(x, x).dtype(), at::kFloat);
  }
  EXPECT_EQ(at::mm(x, x).dtype(), at::autocast::get_autocast_dtype(at::kCPU));
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

// There is nobody here to serve these modes, so that a call that reaches one of them raises.
TEST(ExecutionGuard, ModesOfTheUserDoNotSeeTheCalls) {
  const at::Tensor x = at::ones({2});
  for (const c10::DispatchKey mode : {c10::DispatchKey::Python, c10::DispatchKey::FuncTorchDynamicLayerFrontMode}) {
    const c10::impl::IncludeDispatchKeyGuard user(mode);
    EXPECT_THROW(x * 2, c10::Error) << mode;
    const ExecutionGuard guard;
    EXPECT_TRUE(at::equal(x * 2, at::full({2}, 2.F))) << mode;
  }
}

TEST(ExecutionGuard, FactoriesFindTheirBackend) {
  const ExecutionGuard guard;
  EXPECT_TRUE(at::zeros({2}, at::kFloat).is_cpu());
}

TEST(ExecutionGuard, LeavesTheThreadAsItWas) {
  const c10::impl::IncludeDispatchKeyGuard included(c10::DispatchKey::FuncTorchVmapMode);
  const c10::impl::ExcludeDispatchKeyGuard excluded(c10::DispatchKey::AutogradCPU);
  const c10::impl::LocalDispatchKeySet before = c10::impl::tls_local_dispatch_key_set();
  {
    const ExecutionGuard outer;
    const ExecutionGuard inner;
  }
  const c10::impl::LocalDispatchKeySet after = c10::impl::tls_local_dispatch_key_set();
  EXPECT_EQ(after.included_, before.included_);
  EXPECT_EQ(after.excluded_, before.excluded_);
}

} // namespace
} // namespace lazyplug
