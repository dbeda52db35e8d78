#pragma once

#include <c10/core/TensorImpl.h>

#include "common/small_set.h"
#include "lowering/ir/geometry.h"

namespace lazyplug {

class LazyStorageImpl;

// A tensor argument as a call sees it.
struct TensorArg {
  TensorArg() = default;
  TensorArg(const c10::TensorImpl& tensor, LazyStorageImpl* storage, bool written, bool out = false)
      : tensor(&tensor), storage(storage), written(written), out(out) {}

  const c10::TensorImpl* tensor = nullptr; // null: undefined
  LazyStorageImpl* storage = nullptr;      // null: undefined, or a CPU tensor
  // The call reads these elements of the storage instead, from where the tensor begins; null: the tensor.
  const Geometry* view = nullptr;
  bool written = false;
  bool out = false; // passed as out=
};

// The storages of a call's tensors.
class CallStorages {
 public:
  // Whether the tensor shares its storage with an earlier one, and one of the two is written.
  bool add(const LazyStorageImpl& storage, bool written) {
    const bool is_first = all_.insert(&storage);
    const bool is_shared = !is_first && (written || written_.contains(&storage));
    if (written) {
      written_.insert(&storage);
    }
    return is_shared;
  }

 private:
  SmallSet<const LazyStorageImpl*> all_;
  SmallSet<const LazyStorageImpl*> written_;
};

} // namespace lazyplug
