#include "backend/diagnostics/journal.h"

#include <chrono>
#include <deque>

#include "common/config.h"
#include "common/fork_safe_mutex.h"

namespace lazyplug {
namespace {

constexpr size_t kMaxEntries = 10000;

// Never destroyed: workers write while the process exits.
struct Journal {
  static Journal& get() {
    static auto* journal = new Journal();
    return *journal;
  }
  ForkSafeMutex mutex; // guards entries
  std::deque<JournalEntry> entries;
};

} // namespace

const char* to_string(JournalKind kind) {
  switch (kind) {
    case JournalKind::kSync:
      return "sync";
    case JournalKind::kFallback:
      return "fallback";
    case JournalKind::kCompile:
      return "compile";
    case JournalKind::kRun:
      break;
  }
  return "run";
}

int64_t journal_clock() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void add_to_journal(
    JournalKind kind,
    std::string cause,
    std::string detail,
    const char* location,
    int64_t duration_ns,
    int64_t bytes) {
  if (!config().debug.get()) {
    return;
  }
  JournalEntry entry{
      kind,
      std::move(cause),
      std::move(detail),
      location ? location : "",
      journal_clock() - duration_ns,
      duration_ns,
      bytes};
  auto& journal = Journal::get();
  const ForkSafeLock lock(journal.mutex);
  if (journal.entries.size() == kMaxEntries) {
    journal.entries.pop_front();
  }
  journal.entries.push_back(std::move(entry));
}

std::vector<JournalEntry> journal() {
  auto& journal = Journal::get();
  const ForkSafeLock lock(journal.mutex);
  return {journal.entries.begin(), journal.entries.end()};
}

void clear_journal() {
  auto& journal = Journal::get();
  const ForkSafeLock lock(journal.mutex);
  journal.entries.clear();
}

} // namespace lazyplug
