#pragma once

#include <cstdint>
#include <string>
#include <vector>

// What has happened, event by event, with the user's lines: for reports. Kept
// only while the flag `debug` is set, and bounded; the metrics count the same
// things always.
namespace lazyplug {

enum class JournalKind : uint8_t {
  kSync,     // a trace was cut
  kWait,     // the program read something, or ran an op at once, and had to wait if it was not there
  kFallback, // an op ran on the CPU
  kCompile,  // of a trace that was new
  kRun,      // of a trace
  kStep,     // the program said that a step ends
};

const char* to_string(JournalKind kind);

// A call that a run has made.
struct JournalOp {
  std::string name;               // "aten::add"; of a group, its last one
  const char* location = nullptr; // the user's line, or null
  float seconds = 0;
};

// Locations are the user's lines, interned, or null: looking one up takes
// Python's lock, which workers must not wait for.
struct JournalEntry {
  JournalKind kind = JournalKind::kSync;
  std::string cause = {};  // "item", "aten::nonzero", "shape"
  std::string detail = {}; // for people
  const char* location = nullptr;
  int64_t duration_ns = 0;         // of a cut: since the trace's first op was recorded
  int64_t bytes = 0;               // of the results that a cut trace allocates
  uint64_t trace = 0;              // the number of the trace that was cut, compiled or run, or 0
  std::vector<JournalOp> ops = {}; // of a run, in order
  // Of the place at which the entry was added.
  int64_t start_ns = 0;  // on the steady clock: it ended then
  int64_t thread = 0;    // the system's number
  int64_t allocated = 0; // bytes that all devices' tensors and kernels used
};

// Adds what ends now.
void add_to_journal(JournalEntry entry);

std::vector<JournalEntry> journal();
void clear_journal();

// Nanoseconds on the clock of the journal.
int64_t journal_clock();

// The same for the start of an entry, 0 if nobody wants to know; and how long that
// is ago, 0 if nobody wanted to.
int64_t journal_start();
int64_t since(int64_t journal_start);

} // namespace lazyplug
