#include "backend/recording/fast_kernels.h"

#include <ATen/Operators.h>

#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

using fast_kernels::is_differentiated;
using fast_kernels::is_plain;
using fast_kernels::kMayBeFast;

class FastKernelsTest : public BackendTest {
 protected:
  static at::Tensor differentiated() {
    return to_lazy(iota({3})).requires_grad_();
  }
};

// fast<Op>() asserts the same: the gradients of these would be lost.
TEST_F(FastKernelsTest, OptionalListsOfTensorsMayNotBeFast) {
  EXPECT_FALSE((kMayBeFast<at::Tensor(const at::Tensor&, std::optional<at::TensorList>)>));
}

TEST_F(FastKernelsTest, OpsOnTensorsListsOfThemAndOptionalOnesMay) {
  EXPECT_TRUE((kMayBeFast<at::_ops::stack::schema>));
  EXPECT_TRUE((kMayBeFast<at::_ops::cat::schema>));
  EXPECT_TRUE((kMayBeFast<at::_ops::add_Tensor::schema>));
  EXPECT_TRUE((kMayBeFast<at::_ops::add__Tensor::schema>));
  EXPECT_TRUE((kMayBeFast<at::_ops::convolution::schema>));
  EXPECT_TRUE((kMayBeFast<at::_ops::native_layer_norm::schema>));
  EXPECT_TRUE((kMayBeFast<at::_ops::index_Tensor::schema>));
}

TEST_F(FastKernelsTest, OptionalTensorsAreLookedAt) {
  const at::Tensor plain = to_lazy(iota({3}));
  EXPECT_FALSE(is_differentiated(std::optional<at::Tensor>()));
  EXPECT_FALSE(is_differentiated(std::optional<at::Tensor>(at::Tensor())));
  EXPECT_FALSE(is_differentiated(std::make_optional(plain)));
  EXPECT_TRUE(is_differentiated(std::make_optional(differentiated())));
}

TEST_F(FastKernelsTest, OptionalTensorsOfListsAreLookedAt) {
  const auto list = [](const at::Tensor& tensor) {
    return c10::List<std::optional<at::Tensor>>({std::nullopt, at::Tensor(), tensor});
  };
  EXPECT_FALSE(is_differentiated(list(to_lazy(iota({3})))));
  EXPECT_TRUE(is_differentiated(list(differentiated())));
}

TEST_F(FastKernelsTest, TensorsOfListsAreLookedAt) {
  const at::Tensor plain = to_lazy(iota({3}));
  const std::vector<at::Tensor> with_plain{plain, plain};
  const std::vector<at::Tensor> with_differentiated{plain, differentiated()};
  EXPECT_FALSE(is_differentiated(at::TensorList()));
  EXPECT_FALSE(is_differentiated(at::TensorList(with_plain)));
  EXPECT_TRUE(is_differentiated(at::TensorList(with_differentiated)));
  EXPECT_TRUE(is_differentiated(at::ITensorListRef(with_differentiated)));
}

TEST_F(FastKernelsTest, ACallIsPlainIfNoArgumentIsDifferentiated) {
  const c10::DispatchKeySet keys(c10::DispatchKey::AutogradPrivateUse1);
  const at::Tensor plain = to_lazy(iota({3}));
  EXPECT_TRUE(is_plain(keys, plain, std::make_optional(plain), 1.0));
  EXPECT_FALSE(is_plain(keys, plain, std::make_optional(differentiated()), 1.0));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(is_plain(keys, plain, std::make_optional(differentiated()), 1.0));
}

TEST_F(FastKernelsTest, AKnownCallGoesToAutogradIfOneOfAListIsDifferentiated) {
  const at::Tensor x = to_lazy(iota({3}));
  for (int i = 0; i < 4; ++i) {
    const at::Tensor y = at::cat({x, to_lazy(iota({3}))});
    EXPECT_FALSE(y.requires_grad());
    EXPECT_TRUE(at::equal(y.cpu(), at::cat({iota({3}), iota({3})})));
  }
  EXPECT_GT(count("Predicted"), 0);
  EXPECT_TRUE(at::cat({x, differentiated()}).requires_grad());
  EXPECT_TRUE(at::stack({differentiated(), x}).requires_grad());
}

TEST_F(FastKernelsTest, AKnownCallGoesToAutogradIfAnOptionalArgumentIsDifferentiated) {
  const at::Tensor x = to_lazy(iota({2, 3}));
  const auto norm = [&x](const at::Tensor& bias) {
    return std::get<0>(at::native_layer_norm(x, {3}, std::nullopt, bias, 1e-5));
  };
  for (int i = 0; i < 4; ++i) {
    const at::Tensor y = norm(to_lazy(iota({3})));
    EXPECT_FALSE(y.requires_grad());
    y.cpu();
  }
  EXPECT_GT(count("Predicted"), 0);
  EXPECT_TRUE(norm(differentiated()).requires_grad());
}

} // namespace
} // namespace lazyplug
