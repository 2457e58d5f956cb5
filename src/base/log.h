// Log lines of the program. They go to standard error; prompt text and keys never appear at the default level.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string_view>
#include <utility>

namespace lily::log {

enum class Level : std::uint8_t { Debug, Info, Warn, Error };

// Lines below `level` are dropped; Info at start. May be called from any thread.
void set_level(Level level);
bool enabled(Level level);
void write(Level level, std::string_view line);

template <class... Args>
void log(Level level, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(level)) write(level, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  log(Level::Debug, format, std::forward<Args>(args)...);
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  log(Level::Info, format, std::forward<Args>(args)...);
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  log(Level::Warn, format, std::forward<Args>(args)...);
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  log(Level::Error, format, std::forward<Args>(args)...);
}

}  // namespace lily::log
