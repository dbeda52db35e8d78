#include "backend/op_registry.h"

#include <gtest/gtest.h>

#include <thread>

namespace lazyplug {
namespace {

TEST(OpRegistry, DescribesAnOpOnce) {
  const OpInfo& add = op_info("aten::add", "Tensor");
  EXPECT_EQ(add.name(), "aten::add.Tensor");
  EXPECT_EQ(&add, &op_info(c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor")));
  EXPECT_NE(&add, &op_info("aten::add", "out"));
}

TEST(OpRegistry, ThreadsAgree) {
  std::vector<const OpInfo*> seen(4);
  std::vector<std::thread> threads;
  for (auto& slot : seen) {
    threads.emplace_back([&slot] { slot = &op_info("aten::addcmul", ""); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(seen, std::vector<const OpInfo*>(4, &op_info("aten::addcmul", "")));
}

TEST(OpRegistry, AppliesTraits) {
  EXPECT_TRUE(op_info("aten::native_batch_norm", "").hidden_write(3));
}

TEST(OpRegistry, UnknownOpsRaise) {
  EXPECT_THROW(op_info("aten::no_such_op", ""), c10::Error);
}

} // namespace
} // namespace lazyplug
