// Log lines of the program. They go to standard error; prompt text and keys never appear at the default level.
#pragma once

#include <spdlog/spdlog.h>

namespace lily::log {

using spdlog::debug;
using spdlog::error;
using spdlog::info;
using spdlog::warn;

}  // namespace lily::log
