// Where the repository lies: its data is read by tests. LILY_SOURCE_DIR in the environment wins over the folder that
// the tests were built from, for programs that were built on another machine.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace lily {

inline std::filesystem::path source_dir() {
  const char* set = std::getenv("LILY_SOURCE_DIR");
  return set != nullptr ? set : LILY_SOURCE_DIR;
}

}  // namespace lily
