#pragma once

#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <memory>

namespace lazyplug {

// A set of what a call has: mostly a handful, which is quickest compared one by one; a call on the parameters of a
// whole model has hundreds.
template <typename T>
class SmallSet {
 public:
  bool contains(const T& value) const {
    return many_ ? many_->count(value) != 0 : std::find(few_.begin(), few_.end(), value) != few_.end();
  }
  // False if it was there already.
  bool insert(const T& value) {
    if (contains(value)) {
      return false;
    }
    if (!many_ && few_.size() < kFew) {
      few_.push_back(value);
      return true;
    }
    if (!many_) {
      many_ = std::make_unique<ska::flat_hash_set<T>>();
      many_->reserve(kMany);
      many_->insert(few_.begin(), few_.end());
    }
    return many_->insert(value).second;
  }

 private:
  static constexpr size_t kFew = 16;
  static constexpr size_t kMany = 512; // without growing
  c10::SmallVector<T, kFew> few_;
  std::unique_ptr<ska::flat_hash_set<T>> many_;
};

} // namespace lazyplug
