// Messages for people on stderr, filtered by the flag log_level. Metrics are for counting, exceptions for errors.
#pragma once

#include <cstdint>
#include <string_view>

#include <c10/util/StringUtil.h>

namespace lazyplug {

// From the least to the most severe; kOff is only a threshold.
enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

bool log_enabled(LogLevel level);

// Writes one line, whole even when threads write at once, whatever the level of the flag.
void write_log(LogLevel level, std::string_view message);

// log_*: concatenates its arguments, if the level is enabled.
template <typename... Args>
void log_at(LogLevel level, const Args&... args) {
  if (log_enabled(level)) {
    write_log(level, c10::str(args...));
  }
}

template <typename... Args>
void log_debug(const Args&... args) {
  log_at(LogLevel::kDebug, args...);
}

template <typename... Args>
void log_info(const Args&... args) {
  log_at(LogLevel::kInfo, args...);
}

template <typename... Args>
void log_warning(const Args&... args) {
  log_at(LogLevel::kWarning, args...);
}

template <typename... Args>
void log_error(const Args&... args) {
  log_at(LogLevel::kError, args...);
}

} // namespace lazyplug
