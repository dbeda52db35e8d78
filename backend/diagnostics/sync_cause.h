#pragma once

#include <cstddef>

namespace lazyplug {

// Says, for the life of the scope, why this thread makes pending work run. The
// outermost scope wins: it is what the user asked for.
class SyncCause {
 public:
  explicit SyncCause(const char* cause);
  SyncCause(const SyncCause&) = delete;
  SyncCause& operator=(const SyncCause&) = delete;
  ~SyncCause();

 private:
  const bool is_outermost_;
};

// This thread has cut a trace: counts "TraceCut" and "Sync/<cause>", and tells
// the journal. Takes Python's lock, if the flag `debug` is set.
void note_cut(size_t num_nodes, size_t num_results, size_t bytes);

} // namespace lazyplug
