#pragma once

#include <functional>
#include <vector>

#include "backend/diagnostics/origins.h"
#include "backend/execution/future_contents.h"
#include "common/float_control.h"
#include "device/worker.h"
#include "lowering/ir/trace.h"

namespace lazyplug {

// A leaf of a trace whose contents an earlier job computes.
struct PendingLeaf {
  uint32_t leaf; // its number among the trace's leaves
  const Geometry* layout;
  FutureContentsPtr data;
};

// What a kernel has taught: the strides that it gives to an output of the call.
struct Lesson {
  SignaturePtr signature;
  uint32_t output;
  c10::DimVector strides;
};

// What there is to tell of a job that has run.
struct JobReport {
  std::vector<FailurePtr> failures; // that began in it, in program order
  std::vector<Lesson> lessons;
  std::vector<float> kernels; // if they were timed: the seconds that each call's have taken
  double overhead = 0;        // and what the job has taken besides
};

// A trace cut from its stream, and what it is to compute.
struct Job {
  Trace trace;
  std::vector<PendingLeaf> pending_leaves;
  std::vector<Value> roots;
  std::vector<const Geometry*> layouts;         // of the roots' storages
  std::vector<FutureContentsPtr> results;       // one for each root
  std::vector<c10::Storage> checks;             // of some roots, which nobody else may hold
  std::vector<FutureContentsPtr> passed_checks; // of earlier jobs, to be let go of without a lock
  Provenance provenance;
  uint64_t newest_tensor = 0; // that there was when it was cut: the number of its storage
  c10::DeviceIndex device = 0;
  int num_threads = 0;                                         // of the thread that cut it, within an op
  FloatControl float_control = FloatControl::of_this_thread(); // of the same
  bool may_teach = false;                                      // some signature is not proven
  bool timed = false;                                          // the report says what kernels take
  Worker* side = nullptr;                                      // may run parts of it beside it
  Trace whole; // what the trace has been taken from, if run_job() has left something out: owns the layouts
};

// Whether some op that they depend on has a signature that is not proven.
bool may_teach(const Trace& trace, c10::ArrayRef<Value> roots);

// Computes the results of a job; each is ready afterwards, with its memory or
// its failure. Runs on any thread, under no lock; waits for leaves that other
// streams compute. Never throws.
JobReport run_job(Job job);

} // namespace lazyplug
