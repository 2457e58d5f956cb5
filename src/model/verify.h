// Everything that can be checked about a checkpoint by reading all of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace lily {

struct VerifyLine {
  enum class Outcome : std::uint8_t { Passed, Failed, NotChecked, Note };
  Outcome outcome;
  std::string text;
};

struct VerifyReport {
  std::vector<VerifyLine> lines;
  bool sound() const;  // nothing failed
};

struct VerifySpec {
  bool quick = false;                                                     // headers and sizes only
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // bytes read; may be empty
};

// An error is a checkpoint that does not open at all; otherwise each check has its line.
Result<VerifyReport> verify_checkpoint(const std::filesystem::path& directory, const VerifySpec& spec);

}  // namespace lily
