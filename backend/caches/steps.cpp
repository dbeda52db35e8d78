#include "backend/caches/steps.h"

#include <atomic>

#include "backend/caches/short_steps.h"

namespace lazyplug {
namespace {

std::atomic<uint64_t> step_number{2};

} // namespace

void note_step() {
  step_number.fetch_add(1, std::memory_order_relaxed);
  note_end_of_step();
}

uint64_t current_step() {
  return step_number.load(std::memory_order_relaxed);
}

} // namespace lazyplug
