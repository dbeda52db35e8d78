#pragma once

#include <c10/core/Storage.h>
#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <exception>
#include <memory>

#include "device/worker.h"

namespace lazyplug {

// What an op raised while it ran, shared by all results that depend on it.
struct Failure {
  explicit Failure(std::exception_ptr raised) : error(std::move(raised)) {}
  const std::exception_ptr error;
  std::atomic<bool> seen{false}; // it has been raised to somebody
};
using FailurePtr = std::shared_ptr<Failure>;

// The contents of a storage that a job has been asked to compute: a future. It
// is held by the storage, by the job, and by jobs behind it that read it.
//
// Locking: the job's thread writes `memory` and `failure` before it sets
// `ready`; from then on they are read only, except that a sole owner may take
// them.
struct FutureContents : c10::intrusive_ptr_target {
  FutureContents(Worker& runs_on, Worker::Ticket job) : worker(&runs_on), ticket(job) {}

  // Returns when the job has run; may run it on this thread.
  void wait() const {
    if (!is_ready()) {
      worker->wait(ticket);
      TORCH_INTERNAL_ASSERT(is_ready(), "a job has left a result undone");
    }
  }
  bool is_ready() const {
    return ready.load(std::memory_order_acquire);
  }
  void set(c10::Storage contents, FailurePtr error) {
    memory = std::move(contents);
    failure = std::move(error);
    ready.store(true, std::memory_order_release);
  }

  Worker* const worker;
  const Worker::Ticket ticket;
  // No memory: it could not be computed. Memory and a failure: only a write to
  // it failed.
  c10::Storage memory;
  FailurePtr failure;
  std::atomic<bool> ready{false};
};
using FutureContentsPtr = c10::intrusive_ptr<FutureContents>;

} // namespace lazyplug
