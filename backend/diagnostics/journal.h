#pragma once

#include <cstdint>
#include <string>
#include <vector>

// What has happened, event by event, with the user's lines: for reports. Kept
// only while the flag `debug` is set, and bounded; the metrics count the same
// things always.
namespace lazyplug {

enum class JournalKind : uint8_t { kSync, kFallback, kCompile, kRun };

const char* to_string(JournalKind kind);

struct JournalEntry {
  JournalKind kind = JournalKind::kSync;
  std::string cause;    // "item", "aten::nonzero", "shape"
  std::string detail;   // for people
  std::string location; // the user's line, or empty
  int64_t start_ns = 0; // on the steady clock
  int64_t duration_ns = 0;
  int64_t bytes = 0; // of the results that a cut trace allocates
};

// Adds what ends now. `location` may be null: looking it up takes Python's lock,
// which workers must not wait for.
void add_to_journal(
    JournalKind kind,
    std::string cause,
    std::string detail,
    const char* location,
    int64_t duration_ns = 0,
    int64_t bytes = 0);

std::vector<JournalEntry> journal();
void clear_journal();

// Nanoseconds on the clock of the journal.
int64_t journal_clock();

} // namespace lazyplug
