#include "backend/recording/cpu_tensors.h"

#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class CpuTensorsTest : public BackendTest {
 protected:
  const at::Tensor x = to_lazy(iota({2, 3}));
  CpuTensors tensors{0, /*may_write=*/false};
};

TEST_F(CpuTensorsTest, WhatGoesInComesOut) {
  const at::Tensor cpu = tensors.to_cpu(x, /*written=*/false);
  EXPECT_TRUE(cpu.is_cpu());
  EXPECT_EQ(cpu.const_data_ptr(), x.const_data_ptr());
  EXPECT_TRUE(tensors.to_cpu(x, false).is_same(cpu)) << "one tensor stays one";
  EXPECT_TRUE(tensors.to_lazy(cpu).is_same(x));
  EXPECT_FALSE(tensors.to_cpu(at::Tensor(), false).defined());
}

TEST_F(CpuTensorsTest, ViewsOfArgumentsShareTheirStorage) {
  const at::Tensor cpu = tensors.to_cpu(x, false);
  const at::Tensor view = tensors.to_lazy(cpu.t());
  EXPECT_TRUE(view.is_alias_of(x));
  expect_equal(view, iota({2, 3}).t());
}

TEST_F(CpuTensorsTest, CpuArgumentsStayWhereTheyAre) {
  const at::Tensor number = at::ones({});
  EXPECT_TRUE(tensors.to_cpu(number, false).is_same(number));
  EXPECT_TRUE(tensors.to_lazy(number).is_same(number));
}

TEST_F(CpuTensorsTest, NewTensorsMoveToTheDevice) {
  at::Tensor cpu = iota({3, 2}).t();
  const void* memory = cpu.const_data_ptr();
  const at::Tensor lazy = tensors.to_lazy(std::move(cpu));
  EXPECT_EQ(lazy.device(), lazy_device(0));
  EXPECT_EQ(lazy.key_set(), (x + x).key_set());
  EXPECT_EQ(lazy.const_data_ptr(), memory);
  expect_equal(lazy, iota({3, 2}).t());
}

TEST_F(CpuTensorsTest, TensorsThatSomebodyHoldsStayOnTheCpu) {
  const at::Tensor cpu = iota({3, 2});
  const at::Tensor lazy = tensors.to_lazy(cpu);
  EXPECT_TRUE(cpu.is_cpu());
  EXPECT_TRUE(tensors.to_lazy(cpu.t()).is_alias_of(lazy));
}

TEST_F(CpuTensorsTest, WrittenTensorsFollowWhatTheOpDid) {
  CpuTensors writing(0, /*may_write=*/true);
  const at::Tensor y = to_lazy(iota({2}));
  const at::Tensor cpu = writing.to_cpu(y, /*written=*/true);
  cpu.resize_({2, 2}).fill_(7);
  writing.update_written();
  expect_equal(y, at::full({2, 2}, 7.F));
}

} // namespace
} // namespace lazyplug
