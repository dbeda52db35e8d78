#include "lowering/execution/warnings.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "common/fork_safe_mutex.h"

namespace lazyplug {
namespace {

// The texts that have been shown. Some contain sizes, so they are not kept for ever.
class ShownTexts {
 public:
  static ShownTexts& get() {
    static auto* texts = new ShownTexts();
    return *texts;
  }
  void add(const std::string& text) {
    constexpr size_t kMost = 1024;
    const ForkSafeLock lock(mutex_);
    if (texts_.size() == kMost) {
      texts_.clear();
    }
    texts_.insert(text);
  }
  bool contains(const std::string& text) {
    const ForkSafeLock lock(mutex_);
    return texts_.count(text) != 0;
  }

 private:
  ForkSafeMutex mutex_;
  std::unordered_set<std::string> texts_;
};

} // namespace

void WarningCollector::process(const c10::Warning& warning) {
  warnings_.push_back(warning);
}

void show_warnings(const std::vector<c10::Warning>& warnings) {
  for (const c10::Warning& warning : warnings) {
    ShownTexts::get().add(warning.msg());
    c10::warn(warning);
  }
}

std::vector<c10::Warning> not_repeated(std::vector<c10::Warning> first, const std::vector<c10::Warning>& second) {
  std::erase_if(first, [&second](const c10::Warning& warning) {
    const auto has_its_text = [&warning](const c10::Warning& other) { return other.msg() == warning.msg(); };
    return std::any_of(second.begin(), second.end(), has_its_text);
  });
  return first;
}

void ShownWarningsMuted::process(const c10::Warning& warning) {
  if (!ShownTexts::get().contains(warning.msg())) {
    previous_->process(warning);
  }
}

} // namespace lazyplug
