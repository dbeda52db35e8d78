#include <ATen/TracerMode.h>

#include "backend/native/kernels.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class Convolution : public BackendTest {
 protected:
  static at::Tensor convolve(const at::Tensor& images, const at::Tensor& filters) {
    return at::convolution(images, filters, {}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1);
  }
  const at::Tensor images_ = at::randn({2, 3, 6, 6});
  const at::Tensor filters_ = at::randn({4, 3, 3, 3});
};

TEST_F(Convolution, IsRecorded) {
  const int64_t before = count("lazy::convolution");
  const at::Tensor result = convolve(to_lazy(images_), to_lazy(filters_));
  EXPECT_EQ(count("lazy::convolution"), before + 1);
  EXPECT_TRUE(at::equal(result.cpu(), convolve(images_, filters_)));
}

TEST_F(Convolution, IsComposedWhereATracerLooksOn) {
  const at::Tensor images = to_lazy(images_);
  const at::Tensor filters = to_lazy(filters_);
  const int64_t before = count("lazy::_convolution");
  at::tracer::impl::set_dispatch_enabled(true);
  const at::Tensor result = convolve(images, filters);
  at::tracer::impl::set_dispatch_enabled(false);
  EXPECT_EQ(count("lazy::_convolution"), before + 1);
  EXPECT_TRUE(at::equal(result.cpu(), convolve(images_, filters_)));
}

} // namespace
} // namespace lazyplug
