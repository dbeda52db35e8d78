#include "backend/diagnostics/sync_cause.h"

#include <string>

#include "backend/diagnostics/journal.h"
#include "backend/diagnostics/python_hooks.h"
#include "common/config.h"
#include "common/metrics.h"

namespace lazyplug {
namespace {
thread_local const char* current = nullptr;

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

SyncCause::SyncCause(const char* cause) : is_outermost_(current == nullptr) {
  if (is_outermost_) {
    current = cause;
  }
}

SyncCause::~SyncCause() {
  if (is_outermost_) {
    current = nullptr;
  }
}

void note_cut(size_t num_nodes, size_t num_results, size_t bytes) {
  static Counter& cuts = counter("TraceCut");
  cuts.add();
  const char* cause = current ? current : "memory access";
  counter_of(cause).add();
  if (config().debug.get()) {
    add_to_journal(
        JournalKind::kSync,
        cause,
        std::to_string(num_nodes) + " nodes, " + std::to_string(num_results) + " results",
        current_location(),
        /*duration_ns=*/0,
        static_cast<int64_t>(bytes));
  }
}

} // namespace lazyplug
