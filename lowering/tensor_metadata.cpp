#include <c10/core/TensorImpl.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <string>
#include <unordered_map>

namespace lazyplug {
namespace {

using Flags = std::unordered_map<std::string, bool>;

// What torch._utils.set_tensor_metadata has attached to a tensor. It means nothing to us; torch.save keeps it.
struct TensorMetadata final : public c10::BackendMeta {
  explicit TensorMetadata(Flags flags) : flags(std::move(flags)) {}

  const Flags flags;
};

void get_metadata(const at::Tensor& tensor, Flags& flags) {
  const auto* metadata = dynamic_cast<TensorMetadata*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
  if (metadata) {
    flags.insert(metadata->flags.begin(), metadata->flags.end());
  }
}

void set_metadata(const at::Tensor& tensor, Flags& flags) {
  if (!flags.empty()) {
    tensor.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<TensorMetadata>(flags));
  }
}

[[maybe_unused]] const bool registered = [] {
  torch::jit::TensorBackendMetaRegistry(c10::DeviceType::PrivateUse1, get_metadata, set_metadata);
  return true;
}();

} // namespace
} // namespace lazyplug
