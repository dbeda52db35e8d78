#include "backend/caches/recompiles.h"

#include "backend/diagnostics/journal.h"
#include "common/config.h"
#include "common/fork_safe_mutex.h"
#include "common/logging.h"
#include "lowering/ir/difference.h"
#include "lowering/ir/dump.h"

namespace lazyplug {
namespace {

// How many graphs are compared: those used last.
constexpr size_t kCandidates = 64;

// A compiled graph, what it was compared with, if anything, and how they
// differ. Cheap to keep; the text is made for those who ask.
struct Recompile {
  CachedComputationPtr graph;
  CachedComputationPtr older;
  Difference difference;
};

ForkSafeMutex last_mutex; // guards last_recompile()
Recompile& last_recompile() {
  static auto* last = new Recompile();
  return *last;
}

CachedComputationPtr nearest(const CachedComputation& graph) {
  CachedComputationPtr best;
  size_t most = 0;
  for (const auto& candidate : computation_cache().most_recent(kCandidates)) {
    const size_t common = similarity(graph.trace, candidate->trace);
    if (common > most) {
      most = common;
      best = candidate;
    }
  }
  return best;
}

std::string name(const CachedComputation& graph) {
  return "graph " + to_hex(graph.hash).substr(0, 8) + " (" + std::to_string(graph.computation->num_ops()) + " ops)";
}

// Leaves have no line of their own: the first call that reads them has.
const char* location_of(const Trace& trace, NodeId id) {
  if (trace.node(id).kind == NodeKind::kCall) {
    return trace.node(id).location;
  }
  for (const Node& node : trace.nodes()) {
    for (const Operand& operand : trace.operands(node)) {
      if (operand.value.defined() && operand.value.node == id) {
        return node.location;
      }
    }
  }
  return nullptr;
}

std::string describe(const CachedComputation& graph, NodeId id) {
  if (id >= graph.trace.size()) {
    return "the end";
  }
  std::string text = to_text(graph.trace, id);
  const char* location = location_of(graph.trace, id);
  if (!location) {
    return text;
  }
  const bool is_call = graph.trace.node(id).kind == NodeKind::kCall;
  return is_call ? text : text + " read at " + location;
}

std::string describe(const CachedComputation& graph, const CachedComputation& older, const Difference& difference) {
  std::string text = name(graph) + " differs from " + name(older);
  if (difference.kind == Difference::Kind::kResults) {
    return text + " in what is asked of it: " + difference.what;
  }
  text += " at node %" + std::to_string(difference.node) + ": " + difference.what +
          "\n  now:    " + describe(graph, difference.node) + "\n  before: " + describe(older, difference.node);
  return config().debug.get() ? text : text + "\n  (the setting debug shows Python lines)";
}

std::string describe(const Recompile& recompile) {
  if (!recompile.graph) {
    return "nothing has been compiled yet";
  }
  if (!recompile.older) {
    return name(*recompile.graph) + " is like no graph in the cache";
  }
  return describe(*recompile.graph, *recompile.older, recompile.difference);
}

} // namespace

void note_compile(const CachedComputationPtr& graph) {
  Recompile recompile{graph, nearest(*graph), {}};
  const char* cause = "first";
  if (const auto& older = recompile.older) {
    recompile.difference = first_difference(graph->trace, graph->roots, older->trace, older->roots);
    cause = to_string(recompile.difference.kind);
  }
  counter(std::string("Recompile/") + cause).add();
  if (log_enabled(LogLevel::kDebug) || config().debug.get()) {
    const std::string text = describe(recompile);
    log_debug("compiled ", text);
    add_to_journal(JournalKind::kCompile, cause, text, nullptr);
  }
  const ForkSafeLock lock(last_mutex);
  std::swap(last_recompile(), recompile); // the old one goes without the lock
}

std::string explain_recompile() {
  std::unique_lock<ForkSafeMutex> lock(last_mutex);
  const Recompile last = last_recompile();
  lock.unlock();
  return describe(last);
}

} // namespace lazyplug
