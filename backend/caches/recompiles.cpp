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

std::string at(const char* location) {
  return location ? std::string(" at ") + location : "";
}

// "graph 45f5d348 (4 ops, train.py:8 to train.py:12, ended by item at train.py:13)"
std::string name(const CachedComputation& graph) {
  std::string text =
      "graph " + to_hex(graph.hash).substr(0, 8) + " (" + std::to_string(graph.computation->num_ops()) + " ops";
  const char* first = nullptr;
  const char* last = nullptr;
  for (const Node& node : graph.trace.nodes()) {
    if (node.location) {
      first = first ? first : node.location;
      last = node.location;
    }
  }
  if (first) {
    text += std::string(", ") + first + (first == last ? "" : std::string(" to ") + last);
  }
  const Cut& cut = graph.provenance.cut;
  return text + (cut.cause ? std::string(", ended by ") + cut.cause + at(cut.location) : "") + ")";
}

// Of the first call that reads a value of the node.
const char* line_that_reads(const Trace& trace, NodeId id) {
  for (const Node& node : trace.nodes()) {
    for (const Operand& operand : trace.operands(node)) {
      if (operand.value.defined() && operand.value.node == id && node.location) {
        return node.location;
      }
    }
  }
  return nullptr;
}

std::string describe(const CachedComputation& graph, NodeId id) {
  if (id >= graph.trace.size()) {
    return "the end" + at(graph.provenance.cut.location);
  }
  const Node& node = graph.trace.node(id);
  std::string text = to_text(graph.trace, id);
  if (node.kind == NodeKind::kCall) {
    return text; // with its line
  }
  const auto& origins = graph.provenance.origins;
  if (node.kind == NodeKind::kDeviceData && node.leaf_index < origins.size() && origins[node.leaf_index]) {
    text += " made at " + std::string(origins[node.leaf_index]);
  }
  const char* reader = line_that_reads(graph.trace, id);
  return reader ? text + " read at " + reader : text;
}

const char* what_helps(Difference::Kind kind) {
  switch (kind) {
    case Difference::Kind::kShape:
      return "keep sizes the same from step to step: leave out or pad a last, smaller batch, allocate what grows at "
             "its full size; after max_size_variants of them such calls run without being compiled";
    case Difference::Kind::kDtype:
      return "keep dtypes the same from step to step; 1 and 1.0 are numbers of two types";
    case Difference::Kind::kConstant:
      return "keep this argument the same, or pass a number that changes as a 0-dim tensor";
    case Difference::Kind::kOp:
      return "the program took another way: a condition, a counter or a hook decides; if it changes often, let "
             "torch.where choose, or end the step with mark_step() before it";
    case Difference::Kind::kOperand:
      return "the same calls read other tensors: keep them in the same roles from step to step";
    case Difference::Kind::kEnd:
      return "the step was cut at another place: read values (item, print, cpu) at the same place in each step, or "
             "after mark_step()";
    case Difference::Kind::kResults:
      break;
  }
  return "a tensor lived on, or died, that did not before: keep what you keep in every step, and delete the rest";
}

std::string describe(const CachedComputation& graph, const CachedComputation& older, const Difference& difference) {
  std::string text =
      name(graph) + "\n  is most like " + name(older) + "\n  but differs in its " + to_string(difference.kind) + ": " +
      difference.what + "\n  now:    " + describe(graph, difference.node) +
      "\n  before: " + describe(older, difference.node) + "\n  what helps: " + what_helps(difference.kind);
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

void note_compile(const CachedComputationPtr& graph, int64_t duration_ns) {
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
    const Cut& cut = graph->provenance.cut;
    add_to_journal(
        {.kind = JournalKind::kCompile,
         .cause = cause,
         .detail = text,
         .location = cut.location,
         .duration_ns = duration_ns,
         .trace = cut.trace});
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
