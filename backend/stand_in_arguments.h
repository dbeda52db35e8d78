#pragma once

#include <ATen/core/stack.h>

#include <utility>
#include <vector>

#include "backend/call.h"

namespace lazyplug {

// The arguments of a call as tensors of another device, without their data; CPU
// tensors stay what they are. Tensors that share a storage share one here too,
// so that kernels find the same overlaps.
class StandInArguments {
 public:
  // `fill` is what arguments consist of, where they have data at all.
  StandInArguments(const Call& call, c10::DeviceType device, int fill = 0)
      : call_(call), device_(device), fill_(fill) {}

  c10::Stack make(const c10::Stack& stack);

  // In the order of the call's tensors; undefined ones are undefined here.
  const std::vector<at::Tensor>& tensors() const {
    return tensors_;
  }

 private:
  c10::IValue convert(ArgKind kind, const c10::IValue& value);
  c10::IValue convert_list(const c10::IValue& value);
  c10::IValue convert_tensor(const c10::IValue& value);
  at::Tensor find_or_make(const c10::TensorImpl& tensor, const c10::IValue& value);
  at::Tensor stand_in(const c10::TensorImpl& tensor, const LazyStorageImpl& storage);
  c10::Storage stand_in_storage(const LazyStorageImpl& storage);

  const Call& call_;
  const c10::DeviceType device_;
  const int fill_;
  std::vector<at::Tensor> tensors_;
  std::vector<std::pair<const LazyStorageImpl*, c10::Storage>> storages_;
};

} // namespace lazyplug
