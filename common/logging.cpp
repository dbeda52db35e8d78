#include "common/logging.h"

#include <algorithm>
#include <array>
#include <iostream>

#include "common/parsed_flag.h"

namespace lazyplug {
namespace {

// In the order of LogLevel, spelled as the flag spells them.
constexpr std::array<std::string_view, 5> kLevelNames = {"debug", "info", "warning", "error", "off"};

LogLevel parse(const std::string& text) {
  const auto* name = std::find(kLevelNames.begin(), kLevelNames.end(), text);
  return static_cast<LogLevel>(name - kLevelNames.begin());
}

} // namespace

bool log_enabled(LogLevel level) {
  static ParsedFlag<LogLevel> threshold(config().log_level, parse);
  return level >= threshold.get();
}

void write_log(LogLevel level, std::string_view message) {
  std::cerr << c10::str("[torch_lazyplug ", kLevelNames[static_cast<size_t>(level)], "] ", message, "\n");
}

} // namespace lazyplug
