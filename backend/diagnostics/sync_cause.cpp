#include "backend/diagnostics/sync_cause.h"

#include <string>

#include "backend/diagnostics/journal.h"
#include "backend/diagnostics/python_hooks.h"
#include "common/config.h"
#include "common/metrics.h"

namespace lazyplug {
namespace {
thread_local const SyncCause* outermost = nullptr;

// The same one as the last time, mostly.
Counter& counter_of(const char* cause) {
  static thread_local std::string last;
  static thread_local Counter* counter = nullptr;
  if (!counter || last != cause) {
    counter = &lazyplug::counter(std::string("Sync/") + cause);
    last = cause;
  }
  return *counter;
}

} // namespace

SyncCause::SyncCause(const char* cause) : is_outermost_(outermost == nullptr), cause_(cause) {
  if (!is_outermost_) {
    return;
  }
  outermost = this;
  if (config().debug.get()) {
    location_ = current_location();
    start_ns_ = journal_clock();
  }
}

SyncCause::~SyncCause() {
  if (!is_outermost_) {
    return;
  }
  outermost = nullptr;
  if (start_ns_ != 0) {
    add_to_journal(
        {.kind = JournalKind::kWait,
         .cause = cause_,
         .location = location_,
         .duration_ns = since(start_ns_),
         .trace = trace_});
  }
}

Cut cut_here() {
  if (outermost) {
    return {0, outermost->cause_, outermost->location_};
  }
  return {0, "memory access", config().debug.get() ? current_location() : nullptr};
}

void note_cut(const Cut& cut, size_t num_nodes, size_t num_results, size_t bytes, int64_t start_ns) {
  static Counter& cuts = counter("TraceCut");
  cuts.add();
  counter_of(cut.cause).add();
  if (outermost) {
    outermost->trace_ = cut.trace;
  }
  if (config().debug.get()) {
    add_to_journal(
        {.kind = JournalKind::kSync,
         .cause = cut.cause,
         .detail = std::to_string(num_nodes) + " nodes, " + std::to_string(num_results) + " results",
         .location = cut.location,
         .duration_ns = since(start_ns),
         .bytes = static_cast<int64_t>(bytes),
         .trace = cut.trace});
  }
}

} // namespace lazyplug
