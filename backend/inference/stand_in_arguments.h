#pragma once

#include <ATen/core/stack.h>

#include <optional>
#include <utility>
#include <vector>

#include "backend/inference/read_call.h"

namespace lazyplug {

// The arguments of a call as tensors of another device, without their data; CPU
// tensors stay what they are. Tensors that share a storage share one here too,
// so that kernels find the same overlaps; but on the CPU it has little more than
// what the tensors cover, so their offsets may be smaller.
class StandInArguments {
 public:
  // `fill` is what arguments consist of, where they have data at all.
  StandInArguments(const Call& call, c10::DeviceType device, int fill = 0);

  c10::Stack make(const c10::Stack& stack);

  // In the order of the call's tensors; undefined ones are undefined here.
  const std::vector<at::Tensor>& tensors() const {
    return tensors_;
  }

 private:
  // Bytes of a storage that tensors cover, and how far from the storage's
  // beginning they are moved.
  struct Range {
    const LazyStorageImpl* storage;
    int64_t begin;
    int64_t end;
    int64_t moved = 0;
  };

  void place_tensors();
  int64_t covered_bytes(const LazyStorageImpl& storage) const;
  const Range& range_of(const LazyStorageImpl& storage, int64_t begin) const;
  c10::IValue convert(ArgKind kind, const c10::IValue& value);
  c10::IValue convert_list(const c10::IValue& value);
  c10::IValue convert_tensor(const c10::IValue& value);
  at::Tensor find_or_make(const c10::TensorImpl& tensor, const c10::IValue& value);
  at::Tensor stand_in(const c10::TensorImpl& tensor, const LazyStorageImpl& storage);
  bool is_cast(const c10::TensorImpl& tensor) const;
  c10::Storage make_storage(const LazyStorageImpl& storage) const;
  c10::Storage stand_in_storage(const LazyStorageImpl& storage);

  const Call& call_;
  const c10::DeviceType device_;
  const int fill_;
  const std::optional<c10::ScalarType> common_dtype_;
  std::vector<Range> ranges_; // by storage and beginning
  std::vector<at::Tensor> tensors_;
  std::vector<std::pair<const LazyStorageImpl*, c10::Storage>> storages_;
};

// The same arguments, with CPU tensors of one element in place of tensors: of as many dimensions, and of their dtype,
// or all of this one.
c10::Stack of_one_element(const c10::Stack& arguments, int fill, std::optional<c10::ScalarType> dtype = std::nullopt);

} // namespace lazyplug
