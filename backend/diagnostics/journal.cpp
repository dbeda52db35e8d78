#include "backend/diagnostics/journal.h"

#include <unistd.h>

#include <chrono>
#include <deque>

#include "common/config.h"
#include "common/fork_safe_mutex.h"
#include "device/memory_pools.h"
#include "device/runtime.h"

namespace lazyplug {
namespace {

constexpr size_t kMaxEntries = 10000;
constexpr size_t kMaxOps = 200000;

// Never destroyed: workers write while the process exits.
struct Journal {
  static Journal& get() {
    static auto* journal = new Journal();
    return *journal;
  }
  ForkSafeMutex mutex; // guards the others
  std::deque<JournalEntry> entries;
  size_t num_ops = 0; // of all entries
};

int64_t allocated_bytes() {
  int64_t bytes = 0;
  for (c10::DeviceIndex i = 0; i < device_count_or_zero(); ++i) {
    if (const MemoryPool* pool = device_pool(i)) {
      bytes += pool->stats().allocated_bytes[0].current;
    }
  }
  return bytes;
}

} // namespace

const char* to_string(JournalKind kind) {
  switch (kind) {
    case JournalKind::kSync:
      return "sync";
    case JournalKind::kFallback:
      return "fallback";
    case JournalKind::kCompile:
      return "compile";
    case JournalKind::kWait:
      return "wait";
    case JournalKind::kRun:
      return "run";
    case JournalKind::kStep:
      break;
  }
  return "step";
}

int64_t journal_clock() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

int64_t journal_start() {
  return config().debug.get() ? journal_clock() : 0;
}

int64_t since(int64_t journal_start) {
  return journal_start == 0 ? 0 : journal_clock() - journal_start;
}

void add_to_journal(JournalEntry entry) {
  if (!config().debug.get()) {
    return;
  }
  entry.start_ns = journal_clock() - entry.duration_ns;
  entry.thread = static_cast<int64_t>(gettid());
  entry.allocated = allocated_bytes();
  auto& journal = Journal::get();
  const ForkSafeLock lock(journal.mutex);
  journal.num_ops += entry.ops.size();
  journal.entries.push_back(std::move(entry));
  while (journal.entries.size() > kMaxEntries || journal.num_ops > kMaxOps) {
    journal.num_ops -= journal.entries.front().ops.size();
    journal.entries.pop_front();
  }
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
  journal.num_ops = 0;
}

} // namespace lazyplug
