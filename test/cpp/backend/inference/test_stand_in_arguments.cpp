#include "backend/inference/stand_in_arguments.h"

#include "backend/ops/op_registry.h"
#include "device/generator.h"
#include "test/cpp/backend/backend_test.h"

namespace lazyplug {
namespace {

class StandInArgumentsTest : public BackendTest {
 protected:
  c10::Stack make(const char* name, const char* overload, const c10::Stack& stack, c10::Device device, int fill = 0) {
    const Call call = read_call(op_info(name, overload), stack);
    StandInArguments arguments(call, device.type(), fill);
    c10::Stack result = arguments.make(stack);
    tensors_ = arguments.tensors();
    return result;
  }

  const at::Tensor memory = at::empty({4, 6}, on_lazy());
  std::vector<at::Tensor> tensors_;
};

TEST_F(StandInArgumentsTest, LieAsTheTensorsThatTheyStandFor) {
  const at::Tensor view = memory.t().slice(0, 1, 6, 2);
  for (const c10::DeviceType type : {c10::kCPU, c10::kMeta}) {
    const c10::Stack stack = make("aten::add", "Tensor", {view, view, 1}, type);
    ASSERT_EQ(stack.size(), 3);
    const at::Tensor made = stack[0].toTensor();
    EXPECT_EQ(made.device().type(), type);
    EXPECT_EQ(made.dtype(), view.dtype());
    EXPECT_EQ(made.sizes(), view.sizes());
    EXPECT_EQ(made.strides(), view.strides());
    EXPECT_EQ(made.storage_offset(), view.storage_offset());
    EXPECT_LE(made.storage().nbytes(), memory.storage().nbytes());
    EXPECT_EQ(stack[2].toInt(), 1);
  }
}

TEST_F(StandInArgumentsTest, KeepTheirBits) {
  const at::Tensor complex = at::empty({2}, on_lazy(at::kComplexFloat));
  at::Tensor number = at::empty({}, on_lazy(at::kDouble));
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  make("aten::mul", "Tensor", {at::conj(complex), number}, c10::kMeta);
  EXPECT_TRUE(tensors_[0].is_conj());
  EXPECT_TRUE(tensors_[1].unsafeGetTensorImpl()->is_wrapped_number());
}

TEST_F(StandInArgumentsTest, OnTheCpuTheyAreZerosUnlessTold) {
  const c10::Stack stack = {memory, memory.select(0, 1), 1};
  make("aten::add", "Tensor", stack, c10::kCPU);
  EXPECT_TRUE(tensors_[0].eq(0).all().item<bool>());
  make("aten::add", "Tensor", stack, c10::kCPU, /*fill=*/1);
  EXPECT_TRUE(tensors_[0].eq(1).all().item<bool>());
  EXPECT_TRUE(tensors_[1].eq(1).all().item<bool>());
}

TEST_F(StandInArgumentsTest, ReadAndComputeNothing) {
  make("aten::add_", "Tensor", {memory, memory, 1}, c10::kCPU);
  tensors_[0].fill_(3);
  EXPECT_EQ(state_of(memory), State::kUnallocated);
  EXPECT_EQ(context_.pending_nodes(), 0);
}

TEST_F(StandInArgumentsTest, ShareAStorageIfTheOriginalsDo) {
  const c10::Stack stack = {memory.select(0, 0), memory.select(0, 1), at::empty({6}, on_lazy())};
  for (const c10::DeviceType type : {c10::kCPU, c10::kMeta}) {
    make("aten::addcmul", "", {stack[0], stack[1], stack[2], 1}, type);
    EXPECT_TRUE(tensors_[0].is_alias_of(tensors_[1]));
    EXPECT_FALSE(tensors_[0].is_same(tensors_[1]));
    EXPECT_FALSE(tensors_[0].is_alias_of(tensors_[2]));
  }
}

TEST_F(StandInArgumentsTest, HaveNoMoreMemoryThanTensorsCover) {
  const at::Tensor large = at::empty({1 << 20}, on_lazy());
  make("aten::add", "Tensor", {large.slice(0, 1000, 1008).view({2, 4}), large.slice(0, 0, 4), 1}, c10::kCPU);
  EXPECT_LE(tensors_[0].storage().nbytes(), 200);
  EXPECT_GE(tensors_[0].storage_offset(), 4) << "they do not overlap";
  EXPECT_EQ(tensors_[0].storage_offset() % 16, 1000 % 16) << "aligned as before";
  EXPECT_TRUE(tensors_[0].is_alias_of(tensors_[1]));
}

TEST_F(StandInArgumentsTest, OverlapAsTheOriginalsDo) {
  const at::Tensor large = at::empty({1 << 20}, on_lazy());
  const at::Tensor first = large.slice(0, 5000, 5010);
  const at::Tensor second = large.slice(0, 5004, 5014);
  const at::Tensor third = large.slice(0, 5014, 5024); // adjacent
  const at::Tensor nothing = large.slice(0, 9000, 9000);
  c10::List<at::Tensor> all;
  for (const at::Tensor& tensor : {third, nothing, first, second}) {
    all.push_back(tensor);
  }
  make("aten::cat", "", {all, 0}, c10::kCPU);
  const int64_t begin = tensors_[2].storage_offset();
  EXPECT_LT(begin, 16);
  EXPECT_EQ(tensors_[3].storage_offset(), begin + 4);
  EXPECT_EQ(tensors_[0].storage_offset(), begin + 14);
  EXPECT_EQ(tensors_[1].numel(), 0);
}

TEST_F(StandInArgumentsTest, OneTensorPassedTwiceIsOneTensor) {
  make("aten::add_", "Tensor", {memory, memory, 1}, c10::kCPU);
  EXPECT_TRUE(tensors_[0].is_same(tensors_[1]));
}

TEST_F(StandInArgumentsTest, CpuTensorsStayThemselves) {
  const at::Tensor number = at::ones({});
  make("aten::add", "Tensor", {memory, number, 1}, c10::kMeta);
  EXPECT_TRUE(tensors_[1].is_same(number));
}

TEST_F(StandInArgumentsTest, WhatIsMissingStaysMissing) {
  const at::Tensor weight = at::empty({6}, on_lazy());
  const std::vector<int64_t> shape = {6};
  const c10::Stack stack =
      make("aten::native_layer_norm", "", {memory, shape, c10::IValue(), weight, 1e-5}, c10::kMeta);
  EXPECT_TRUE(stack[2].isNone());
  ASSERT_EQ(tensors_.size(), 3);
  EXPECT_FALSE(tensors_[1].defined());
  EXPECT_TRUE(tensors_[2].is_meta());
}

TEST_F(StandInArgumentsTest, ListsStayListsOfTheSameKind) {
  const at::Tensor rows = at::empty({2}, on_lazy(at::kLong));
  c10::List<std::optional<at::Tensor>> indices;
  indices.push_back(std::nullopt);
  indices.push_back(rows);
  const c10::Stack stack = make("aten::index", "Tensor", {memory, indices}, c10::kMeta);
  const auto made = stack[1].to<c10::List<std::optional<at::Tensor>>>();
  ASSERT_EQ(made.size(), 2);
  EXPECT_FALSE(made.get(0).has_value());
  EXPECT_TRUE(made.get(1)->is_meta());
  EXPECT_EQ(tensors_.size(), 3);
  EXPECT_TRUE(indices.get(1)->is_same(rows)) << "the caller's list is left alone";
}

TEST_F(StandInArgumentsTest, DeviceArgumentsNameTheOtherDevice) {
  const c10::Stack arguments = {std::vector<int64_t>{2}, c10::IValue(), c10::IValue(), lazy_device(0), c10::IValue()};
  EXPECT_EQ(make("aten::ones", "", arguments, c10::kMeta)[3].toDevice(), c10::Device(c10::kMeta));
  EXPECT_EQ(make("aten::ones", "", arguments, c10::kCPU)[3].toDevice(), c10::Device(c10::kCPU));
}

TEST_F(StandInArgumentsTest, GeneratorsAreLeftAlone) {
  const at::Generator mine = default_generator(0);
  const at::Tensor before = mine.get_state();
  const c10::Stack arguments = {memory, 0.0, 1.0, mine};
  const at::Generator other = make("aten::uniform_", "", arguments, c10::kCPU)[3].toGenerator();
  EXPECT_EQ(other.device().type(), c10::kCPU);
  at::rand({4}, other);
  EXPECT_TRUE(at::equal(mine.get_state(), before));
  EXPECT_TRUE(make("aten::uniform_", "", arguments, c10::kMeta)[3].isNone());
}

TEST_F(StandInArgumentsTest, AreMadeOfTheTopOfTheStack) {
  const c10::Stack stack = make("aten::relu", "", {c10::IValue("something else"), memory}, c10::kMeta);
  ASSERT_EQ(stack.size(), 1);
  EXPECT_TRUE(stack[0].toTensor().is_meta());
}

} // namespace
} // namespace lazyplug
