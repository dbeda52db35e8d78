#pragma once

#include <c10/util/Exception.h>

#include <vector>

namespace lazyplug {

// Kernels warn when they run, which is long after the user's line. So the
// warnings of the run that infers a call's result are collected, shown at the
// line, and not shown again when the kernel runs with the user's data.

// Within its scope the thread's warnings are kept, not shown.
class WarningCollector : public c10::WarningHandler {
 public:
  WarningCollector() : guard_(this) {}
  void process(const c10::Warning& warning) override;
  std::vector<c10::Warning> take() {
    return std::move(warnings_);
  }

 private:
  std::vector<c10::Warning> warnings_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

void show_warnings(const std::vector<c10::Warning>& warnings);

// Those of a run that another one does not repeat: they come once in a process.
std::vector<c10::Warning> not_repeated(std::vector<c10::Warning> first, const std::vector<c10::Warning>& second);

// Within its scope warnings that show_warnings() has shown are dropped.
class ShownWarningsMuted : public c10::WarningHandler {
 public:
  ShownWarningsMuted() : previous_(c10::WarningUtils::get_warning_handler()), guard_(this) {}
  void process(const c10::Warning& warning) override;

 private:
  c10::WarningHandler* previous_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

} // namespace lazyplug
