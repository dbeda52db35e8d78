#include "backend/caches/rare_graphs.h"

#include <optional>
#include <unordered_map>

#include "backend/caches/compile_storms.h"
#include "backend/caches/computation_cache.h"
#include "backend/caches/steps.h"
#include "backend/caches/varying_sizes.h"
#include "common/config.h"
#include "common/fork_safe_mutex.h"
#include "common/metrics.h"

namespace lazyplug {
namespace {

class RareGraphs {
 public:
  // Notes that a graph has come. Returns how often it had come, if it is rare.
  std::optional<size_t> note(const Hash128& graph, bool is_always) {
    const uint64_t step = current_step();
    const ForkSafeLock lock(mutex_);
    first_step_ = first_step_ == 0 ? step : first_step_;
    if (!is_always && step < first_step_ + kWarmUp) {
      return std::nullopt;
    }
    if (seen_.size() >= kMaxSeen) {
      seen_.clear();
    }
    Seen& seen = seen_[graph];
    seen.weight += seen.times > 0 && step <= seen.step + kClose ? kWeightOfClose : 1;
    seen.step = step;
    if (!is_always && seen.weight >= kEnough) {
      seen_.erase(graph);
      return std::nullopt;
    }
    return seen.times++;
  }

  void clear() {
    const ForkSafeLock lock(mutex_);
    seen_.clear();
    first_step_ = 0;
  }

 private:
  static constexpr uint64_t kWarmUp = 16;
  static constexpr uint64_t kClose = 16;
  static constexpr size_t kWeightOfClose = 5;
  static constexpr size_t kEnough = 16;
  static constexpr size_t kMaxSeen = 4096;

  struct Seen {
    size_t times = 0;
    size_t weight = 0;
    uint64_t step = 0; // the last one
  };

  ForkSafeMutex mutex_; // guards all members below
  std::unordered_map<Hash128, Seen> seen_;
  uint64_t first_step_ = 0; // 0: there was none
};

RareGraphs& rare_graphs() {
  static auto* graphs = new RareGraphs();
  return *graphs;
}

} // namespace

bool runs_uncompiled(const Trace& trace, c10::ArrayRef<Value> roots) {
  static Counter& misses = counter("CacheMiss");
  static Counter& uncompiled = counter("RunUncompiled");
  const std::string flag = config().compile.get();
  // What these check is the compiled graph.
  if (flag == "always" || config().scramble.get() != 0 || config().verify_torchscript.get()) {
    return false;
  }
  const Hash128 graph = graph_hash(trace, roots);
  const auto times = rare_graphs().note(graph, flag == "never");
  if (!times) {
    return false;
  }
  misses.add();
  uncompiled.add();
  if (*times > 0) {
    note_reused(graph);
  } else if (flag == "auto") { // as if it had been compiled
    note_sizes(trace);
    note_compiled(graph, trace);
  }
  return true;
}

void clear_rare_graphs() {
  rare_graphs().clear();
}

} // namespace lazyplug
