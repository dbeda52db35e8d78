#pragma once

#include <cstdint>

namespace lazyplug {

// Whether a worker should compute, with so many intra-op threads, while the
// calling thread records: whether there are processors for both.
//
// With one intra-op thread each, two processors do. With more, each thread that
// computes has a pool of OpenMP threads of its own, and these spin for a while
// after each loop, against each other and against who records; if they are more
// than the processors, OpenMP has them sleep at once, and then every small loop
// pays for waking them. So either there is room for the pools of the worker and
// of the thread that records, or only the latter has one: the worker then computes
// nothing but light calls, which need none.
bool pays_to_overlap(int num_threads, int num_processors);

// How many processors the process may use.
int available_processors();

// What a worker may compute while the calling thread records: calls of up to so
// much work (light_work()): nothing (a negative number), what is light, or
// everything. The flag `overlap` may decide otherwise. A schedule for tests has
// workers compute everything.
float overlapping_work();

// Whether a thread that waits, or the worker, should run parts of a job (lowering/execution/side_calls.h) beside the
// thread that runs it, with so many intra-op threads each: it needs the same processors as overlap does. PyTorch's
// number of inter-op threads, if that is 1, forbids it.
bool may_run_side_calls(int num_threads);

// Both for who asks often, and asks for the number of processors, which takes a
// system call, only now and then.
class OverlappingWork {
 public:
  float get();
  // When get() was called last.
  bool may_run_side_calls() const {
    return may_run_side_calls_;
  }

 private:
  static constexpr int kAnswers = 16; // that are the same, unless threads or flags change

  float work_ = 0;
  bool may_run_side_calls_ = false;
  int answers_left_ = 0;
  int num_threads_ = 0;
  uint64_t version_ = 0; // of the flags
};

} // namespace lazyplug
