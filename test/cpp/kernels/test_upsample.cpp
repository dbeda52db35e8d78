#include "kernels/upsample.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace lazyplug::kernels {
namespace {

TEST(Upsample, CopiesTheElementsOfItsTables) {
  const at::Tensor in = at::randn({3, 4, 5});
  const Upsample upsample{3, 4, 5, {0, 0, 1, 3, 3}, {0, 1, 1, 4, 4, 4, 2}};
  const at::Tensor out = at::empty({3, 5, 7});
  run(upsample, in.const_data_ptr<float>(), out.mutable_data_ptr<float>());
  const at::Tensor rows = in.index_select(1, at::tensor(upsample.rows));
  EXPECT_TRUE(out.equal(rows.index_select(2, at::tensor(upsample.columns))));
}

TEST(Upsample, RunsOnSeveralThreads) {
  const at::Tensor in = at::randn({70, 30, 30});
  Upsample upsample{70, 30, 30, {}, {}};
  for (int i = 0; i < 60; ++i) {
    upsample.rows.push_back(i / 2);
    upsample.columns.push_back(i / 2);
  }
  const at::Tensor out = at::empty({70, 60, 60});
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  run(upsample, in.const_data_ptr<float>(), out.mutable_data_ptr<float>());
  at::set_num_threads(threads);
  EXPECT_TRUE(out.equal(in.repeat_interleave(2, 1).repeat_interleave(2, 2)));
}

} // namespace
} // namespace lazyplug::kernels
