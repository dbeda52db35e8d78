#include "backend/caches/rare_graphs.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "backend/caches/beginnings.h"
#include "backend/caches/compile_storms.h"
#include "backend/caches/computation_cache.h"
#include "backend/caches/steps.h"
#include "backend/caches/varying_sizes.h"
#include "common/fork_safe_mutex.h"
#include "common/metrics.h"
#include "common/parsed_flag.h"

namespace lazyplug {
namespace {

class RareGraphs {
 public:
  // Notes that a graph has come. Returns how often it had come, if it is rare.
  std::optional<size_t> note(const Hash128& graph, const Trace& trace, bool is_always) {
    const uint64_t step = current_step();
    note_graph(trace.nodes().size(), first_step(graph).value_or(step), 0);
    if (!is_always && is_beginning()) {
      return std::nullopt;
    }
    const ForkSafeLock lock(mutex_);
    auto known = seen_.find(graph);
    if (known == seen_.end()) {
      if (seen_.size() >= kMaxSeen) {
        seen_.clear();
      }
      known = seen_.emplace(graph, Seen{step}).first;
    }
    Seen& seen = known->second;
    const uint64_t distance = seen.times > 0 ? step - seen.last_step : kFar;
    seen.weight += (distance <= kClose ? 4 : distance < kFar ? 2 : 1) * cost_of_run(trace);
    seen.last_step = step;
    if (!is_always && seen.weight >= kEnough) {
      seen_.erase(known);
      return std::nullopt;
    }
    return seen.times++;
  }

  void clear() {
    const ForkSafeLock lock(mutex_);
    seen_.clear();
  }

 private:
  // In steps.
  static constexpr uint64_t kClose = 8;
  static constexpr uint64_t kFar = 64;
  static constexpr size_t kEnough = 1024;
  static constexpr size_t kMaxSeen = 4096;
  // Of a result, on average: below, what is around a kernel takes longer than the kernel.
  static constexpr size_t kSmallBytes = 32 << 10;
  static constexpr size_t kMostCost = 128;

  // How much longer a run takes that is not compiled, as a multiple of what it is where tensors are small.
  static size_t cost_of_run(const Trace& trace) {
    const size_t num_results = std::max<size_t>(trace.nodes().size(), 1);
    return std::clamp<size_t>(trace.pending_bytes() / num_results / kSmallBytes, 1, kMostCost);
  }

  std::optional<uint64_t> first_step(const Hash128& graph) {
    const ForkSafeLock lock(mutex_);
    const auto known = seen_.find(graph);
    return known == seen_.end() ? std::nullopt : std::optional(known->second.first_step);
  }

  struct Seen {
    uint64_t first_step = 0;
    uint64_t last_step = 0;
    size_t times = 0;
    size_t weight = 0;
  };

  ForkSafeMutex mutex_; // guards all members below
  std::unordered_map<Hash128, Seen> seen_;
};

RareGraphs& rare_graphs() {
  static auto* graphs = new RareGraphs();
  return *graphs;
}

enum class When : uint8_t { kAuto, kAlways, kNever };

When when_to_compile() {
  static ParsedFlag<When> when(config().compile, [](const std::string& text) {
    return text == "auto" ? When::kAuto : text == "always" ? When::kAlways : When::kNever;
  });
  return when.get();
}

} // namespace

bool runs_uncompiled(const Trace& trace, c10::ArrayRef<Value> roots) {
  static Counter& misses = counter("CacheMiss");
  static Counter& uncompiled = counter("RunUncompiled");
  const When when = when_to_compile();
  // What these check is the compiled graph.
  if (when == When::kAlways || config().scramble.get() != 0 || config().verify_torchscript.get()) {
    return false;
  }
  const Hash128 graph = graph_hash(trace, roots);
  const auto times = rare_graphs().note(graph, trace, when == When::kNever);
  if (!times) {
    return false;
  }
  misses.add();
  uncompiled.add();
  if (*times > 0) {
    note_reused(graph);
  } else if (when == When::kAuto) { // as if it had been compiled
    note_sizes(trace);
    note_compiled(graph, trace);
  }
  return true;
}

void clear_rare_graphs() {
  rare_graphs().clear();
}

} // namespace lazyplug
