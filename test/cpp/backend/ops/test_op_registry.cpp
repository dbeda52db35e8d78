#include "backend/ops/op_registry.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

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
  EXPECT_TRUE(op_info("aten::native_batch_norm", "").writes_argument(3, /*with_hidden=*/true));
}

c10::OperatorHandle find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

TEST(OpRegistry, AnOpOfTheSameNameIsAnotherOne) {
  const OpInfo* first = nullptr;
  {
    torch::Library library(torch::Library::FRAGMENT, "lazyplug_registry", std::nullopt, __FILE__, __LINE__);
    library.def("again(Tensor x) -> Tensor", [](const at::Tensor& x) { return x + 1; });
    first = &op_info(find("lazyplug_registry::again"));
    EXPECT_EQ(find_op("lazyplug_registry::again"), first);
    c10::Stack stack = {at::ones({})};
    first->call(stack);
    EXPECT_EQ(stack.front().toTensor().item<float>(), 2);
  }
  EXPECT_EQ(find_op("lazyplug_registry::again"), nullptr);
  torch::Library library(torch::Library::FRAGMENT, "lazyplug_registry", std::nullopt, __FILE__, __LINE__);
  library.def("again(Tensor x, Tensor y) -> Tensor", [](const at::Tensor& x, const at::Tensor& y) { return x + y; });
  const OpInfo& second = op_info(find("lazyplug_registry::again"));
  EXPECT_NE(&second, first);
  EXPECT_EQ(second.num_args(), 2);
  EXPECT_EQ(first->num_args(), 1);
  EXPECT_EQ(first->num_returns(), 1);
  EXPECT_EQ(first->base_name(), "lazyplug_registry::again");
  c10::Stack stack = {at::ones({})};
  EXPECT_THROW(first->call(stack), c10::Error);
}

TEST(OpRegistry, NumbersOfOtherLibrariesAreConstantsUnlessDeclaredOtherwise) {
  static int runs = 0; // declarations outlive the op
  const std::string name = "lazyplug_registry::scale" + std::to_string(++runs);
  torch::Library library(torch::Library::FRAGMENT, "lazyplug_registry", std::nullopt, __FILE__, __LINE__);
  library.def((name + "(Tensor x, float factor) -> Tensor").c_str(), [](const at::Tensor& x, double factor) {
    return x * factor;
  });
  const OpInfo& before = op_info(find(name.c_str()));
  EXPECT_EQ(before.args()[1].kind, ArgKind::kConstant);
  declare_numbers_inputs(name);
  const OpInfo& after = op_info(find(name.c_str()));
  EXPECT_EQ(after.args()[1].kind, ArgKind::kScalar);
  c10::Stack stack = {at::ones({}), 3.0};
  before.call(stack); // recorded calls still run
  EXPECT_EQ(stack.front().toTensor().item<float>(), 3);
}

TEST(OpRegistry, UnknownOpsRaise) {
  EXPECT_THROW(op_info("aten::no_such_op", ""), c10::Error);
}

} // namespace
} // namespace lazyplug
