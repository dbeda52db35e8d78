#include "common/logging.h"

#include <algorithm>
#include <array>
#include <iostream>

#include "common/config.h"

namespace lazyplug {
namespace {

// In the order of LogLevel, spelled as the flag spells them.
constexpr std::array<std::string_view, 5> kLevelNames = {"debug", "info", "warning", "error", "off"};

LogLevel read_threshold() {
  const auto* name = std::find(kLevelNames.begin(), kLevelNames.end(), config().log_level.get());
  return static_cast<LogLevel>(name - kLevelNames.begin());
}

// The flag's level, parsed again only when the flag has moved.
LogLevel threshold() {
  thread_local uint64_t version = 0;
  thread_local LogLevel level = LogLevel::kOff;
  const uint64_t current = config().log_level.version();
  if (version != current) {
    level = read_threshold();
    version = current;
  }
  return level;
}

} // namespace

bool log_enabled(LogLevel level) {
  return level >= threshold();
}

void write_log(LogLevel level, std::string_view message) {
  std::cerr << c10::str("[torch_lazyplug ", kLevelNames[static_cast<size_t>(level)], "] ", message, "\n");
}

} // namespace lazyplug
