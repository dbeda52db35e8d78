#pragma once

#include <cstddef>
#include <cstdint>

namespace lazyplug {

// Where the program was when a trace was cut.
struct Cut {
  uint64_t trace = 0;             // its number, which no other trace of the process has
  const char* cause = nullptr;    // "item"; null: none
  const char* location = nullptr; // the user's line, if the flag `debug` is set
};

// Says, for the life of the scope, why this thread makes pending work run. The
// outermost scope wins: it is what the user asked for. With the flag `debug`, the
// journal is told how long that scope has lasted. `cause` lives for ever.
class SyncCause {
 public:
  explicit SyncCause(const char* cause);
  SyncCause(const SyncCause&) = delete;
  SyncCause& operator=(const SyncCause&) = delete;
  ~SyncCause();

 private:
  friend Cut cut_here();
  friend void note_cut(const Cut& cut, size_t num_nodes, size_t num_results, size_t bytes, int64_t start_ns);

  const bool is_outermost_;
  const char* const cause_;
  const char* location_ = nullptr;
  int64_t start_ns_ = 0;       // 0: nobody wants to know
  mutable uint64_t trace_ = 0; // the last one that was cut meanwhile
};

// This thread is about to cut a trace, whose number it will learn. Takes Python's
// lock, if the flag `debug` is set.
Cut cut_here();

// A trace has been cut: counts "TraceCut" and "Sync/<cause>", and tells the
// journal. It was recorded from `start_ns` on, on the journal's clock; 0: nobody
// knows.
void note_cut(const Cut& cut, size_t num_nodes, size_t num_results, size_t bytes, int64_t start_ns = 0);

} // namespace lazyplug
