#include "backend/caches/varying_sizes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "backend/caches/steps.h"
#include "backend/ops/call_kinds.h"
#include "common/config.h"
#include "common/fork_safe_mutex.h"

namespace lazyplug {
namespace {

// What is left of a trace.
Hash128 shape_of_program(const Trace& trace) {
  Hash128 hash;
  for (const Node& node : trace.nodes()) {
    hash = node.kind == NodeKind::kCall ? hash_combine(hash, kind_of(*node.signature))
                                        : hash_combine(hash, kind_of(node.layout->dtype, node.layout->sizes.size()));
    for (const Operand& operand : trace.operands(node)) {
      hash = hash_combine(hash, uint64_t{operand.value.node} << 32 | operand.value.output);
    }
  }
  return hash;
}

// How many variants of a program are too many; 0: no number is.
size_t patience() {
  constexpr int64_t kIfExpected = 2;
  const int64_t variants = config().max_size_variants.get();
  return static_cast<size_t>(config().symbolic_shape_mode.get() ? std::min(variants, kIfExpected) : variants);
}

bool may_run_at_once() {
  return patience() != 0 && !config().launch_blocking.get();
}

// Apart from the rest, because every call asks.
std::atomic<uint64_t> last_new_step{0}; // that had a new key

class VaryingSizes {
 public:
  void note(const Trace& trace) {
    const size_t limit = patience();
    if (limit == 0) {
      return;
    }
    const Hash128 program = shape_of_program(trace);
    Kinds kinds = kinds_in(trace);
    const ForkSafeLock lock(mutex_);
    last_compiled_.push_front({program, std::move(kinds)});
    // As much again for what else a step compiles.
    last_compiled_.resize(std::min(last_compiled_.size(), 2 * limit));
    find_varying(limit);
  }

  // Whether sizes vary, and those of the call are new to the program or to this step.
  bool is_new(const Call& call) {
    if (!any_varying_.load(std::memory_order_relaxed)) {
      return false;
    }
    const Hash128 kind = kind_of(call);
    return ask([&](bool& ends_step) { return varying_.count(kind) != 0 && meet(call.key, ends_step); });
  }

  bool varies(const Call& call) {
    const Hash128 kind = kind_of(call);
    return ask([&](bool& ends_step) {
      ends_step = count_call();
      return varying_.count(kind) != 0;
    });
  }

  void clear() {
    const ForkSafeLock lock(mutex_);
    last_compiled_.clear();
    find_varying(patience());
    met_ = {};
    num_calls_ = 0;
    last_new_step.store(0, std::memory_order_relaxed);
  }

 private:
  // Of the processor's cache.
  using Line = std::array<uint64_t, 8>;
  // The lowest bits of what a line holds tell the step.
  static constexpr uint64_t kStepBits = 0xffff;
  // A program that does not tell where its steps end has ended one after so many calls.
  static constexpr uint64_t kCallsPerStep = 4096;
  struct Compiled {
    Hash128 program;
    Kinds kinds; // of its calls
  };

  // Answers with the lock; a step that ends is noted without.
  template <typename Answer>
  bool ask(const Answer& answer) {
    bool ends_step = false;
    bool result = false;
    {
      const ForkSafeLock lock(mutex_);
      result = answer(ends_step);
    }
    if (ends_step) {
      note_step();
    }
    return result;
  }

  // Whether a step ends with it.
  bool count_call() {
    return ++num_calls_ % kCallsPerStep == 0;
  }

  // Whether this is the first step in which the key comes.
  bool meet(const Hash128& key, bool& ends_step) {
    ends_step = count_call();
    const uint64_t step = current_step();
    const uint64_t now = (key.hi & ~kStepBits) | (step & kStepBits);
    Line& line = met_[key.lo % met_.size()];
    for (const uint64_t met : line) {
      if (((met ^ now) & ~kStepBits) == 0) {
        return met == now;
      }
    }
    std::copy_backward(line.begin(), std::prev(line.end()), line.end());
    line.front() = now;
    last_new_step.store(step, std::memory_order_relaxed);
    return true;
  }

  void find_varying(size_t limit) {
    varying_.clear();
    std::unordered_map<Hash128, size_t> variants;
    for (const Compiled& compiled : last_compiled_) {
      if (++variants[compiled.program] == limit) {
        varying_.insert(compiled.kinds.begin(), compiled.kinds.end());
      }
    }
    any_varying_.store(!varying_.empty(), std::memory_order_relaxed);
  }

  std::atomic<bool> any_varying_{false};
  ForkSafeMutex mutex_; // guards all members below
  std::deque<Compiled> last_compiled_;
  Kinds varying_; // of calls in programs that have too many variants
  // Keys of calls that have run at once: half of a key says where it is, the other half is there, the last one to come
  // first. What is pushed out just runs at once again.
  std::array<Line, 2048> met_{};
  uint64_t num_calls_ = 0; // that were asked about
};

VaryingSizes& varying_sizes() {
  static auto* sizes = new VaryingSizes();
  return *sizes;
}

} // namespace

void note_sizes(const Trace& trace) {
  varying_sizes().note(trace);
}

bool has_varying_sizes(const Call& call) {
  return may_run_at_once() && varying_sizes().is_new(call);
}

bool are_sizes_new() {
  const uint64_t last_new = last_new_step.load(std::memory_order_relaxed);
  return current_step() <= last_new + 1 && may_run_at_once();
}

bool goes_with_new_sizes(const Call& call) {
  return are_sizes_new() && varying_sizes().varies(call);
}

void clear_sizes() {
  varying_sizes().clear();
}

} // namespace lazyplug
