#include "backend/recording/force_fallback.h"

#include <fnmatch.h>

#include <atomic>
#include <sstream>

#include "common/config.h"
#include "common/fork_safe_mutex.h"

namespace lazyplug {
namespace {

using Patterns = std::vector<std::string>;

bool matches(const std::string& pattern, const std::string& name) {
  return pattern == "all" || fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// Null, or why the pattern selects nothing.
const char* problem_of(const std::string& pattern) {
  const char* problem = "no operator has that name";
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const bool by_base_name = matches(pattern, name.name);
    if (!by_base_name && !matches(pattern, c10::toString(name))) {
      continue;
    }
    if (by_base_name && name.overload_name.ends_with("out")) {
      continue; // has a kernel even where what people call has none
    }
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (op && !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      return nullptr;
    }
    problem = "it is made of other operators, which reach the device in its place: name these";
  }
  return problem;
}

std::string strip(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  const auto last = text.find_last_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

Patterns parse(const std::string& list) {
  Patterns patterns;
  std::istringstream stream(list);
  for (std::string item; std::getline(stream, item, ',');) {
    item = strip(item);
    if (item.empty()) {
      continue;
    }
    if (const char* problem = problem_of(item)) {
      TORCH_WARN("force_fallback: '", item, "' selects nothing: ", problem);
    }
    patterns.push_back(std::move(item));
  }
  return patterns;
}

// The flag, parsed anew whenever it has changed.
class ForcedOps {
 public:
  static ForcedOps& get() {
    static auto* ops = new ForcedOps();
    return *ops;
  }

  void follow_flag() {
    if (config().force_fallback.version() != version_.load(std::memory_order_acquire)) {
      reload();
    }
  }

  bool is_empty() {
    follow_flag();
    return empty_.load(std::memory_order_relaxed);
  }

  bool contains(const OpInfo& op) {
    if (is_empty()) {
      return false;
    }
    const ForkSafeLock lock(mutex_);
    for (const std::string& pattern : patterns_) {
      if (matches(pattern, op.name()) || matches(pattern, op.base_name())) {
        return true;
      }
    }
    return false;
  }

 private:
  void reload() {
    const auto version = config().force_fallback.version();
    Patterns patterns = parse(config().force_fallback.get());
    const ForkSafeLock lock(mutex_);
    patterns_ = std::move(patterns);
    empty_ = patterns_.empty();
    version_.store(version, std::memory_order_release);
  }

  ForkSafeMutex mutex_; // guards patterns_
  Patterns patterns_;
  std::atomic<bool> empty_{true};
  std::atomic<uint64_t> version_{static_cast<uint64_t>(-1)};
};

} // namespace

bool is_fallback_forced(const OpInfo& op) {
  return ForcedOps::get().contains(op);
}

bool is_any_fallback_forced() {
  return !ForcedOps::get().is_empty();
}

void read_forced_ops() {
  ForcedOps::get().follow_flag();
}

} // namespace lazyplug
