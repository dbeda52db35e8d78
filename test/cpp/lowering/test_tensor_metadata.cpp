#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <string>
#include <unordered_map>

// What PyTorch's serialization attaches to tensors of the device, and finds there again.
namespace lazyplug {
namespace {

using Flags = std::unordered_map<std::string, bool>;

at::Tensor tensor_on_device() {
  const c10::Device device(c10::DeviceType::PrivateUse1, 0);
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(at::kComplexFloat),
      device);
}

TEST(TensorMetadata, IsKept) {
  const at::Tensor tensor = tensor_on_device();
  EXPECT_EQ(torch::jit::getTensorMetadata(tensor), Flags());
  torch::jit::setTensorMetadata(tensor, Flags{{"yes", true}, {"no", false}});
  EXPECT_EQ(torch::jit::getTensorMetadata(tensor), (Flags{{"yes", true}, {"no", false}}));
}

TEST(TensorMetadata, IsReplacedByOther) {
  const at::Tensor tensor = tensor_on_device();
  torch::jit::setTensorMetadata(tensor, Flags{{"first", true}});
  torch::jit::setTensorMetadata(tensor, Flags{{"second", true}});
  EXPECT_EQ(torch::jit::getTensorMetadata(tensor), (Flags{{"second", true}}));
}

TEST(TensorMetadata, NothingIsAttachedForPyTorchsOwnBits) {
  const at::Tensor tensor = tensor_on_device();
  torch::jit::setTensorMetadata(tensor, Flags{{"conj", true}, {"neg", true}});
  EXPECT_TRUE(tensor.is_conj());
  EXPECT_TRUE(tensor.is_neg());
  EXPECT_EQ(tensor.unsafeGetTensorImpl()->get_backend_meta(), nullptr);
  EXPECT_EQ(torch::jit::getTensorMetadata(tensor), (Flags{{"conj", true}, {"neg", true}}));
}

TEST(TensorMetadata, ThatOfOthersIsNotTouched) {
  const at::Tensor tensor = tensor_on_device();
  const auto other = c10::make_intrusive<c10::BackendMeta>();
  tensor.unsafeGetTensorImpl()->set_backend_meta(other);
  EXPECT_EQ(torch::jit::getTensorMetadata(tensor), Flags());
  EXPECT_EQ(tensor.unsafeGetTensorImpl()->get_backend_meta(), other.get());
}

TEST(TensorMetadata, TensorsOfTheCpuHaveNone) {
  const at::Tensor tensor = at::ones({2});
  torch::jit::setTensorMetadata(tensor, Flags{{"yes", true}});
  EXPECT_EQ(torch::jit::getTensorMetadata(tensor), Flags());
}

} // namespace
} // namespace lazyplug
