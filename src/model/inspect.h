// What a checkpoint is, from configuration and headers alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/checkpoint.h"

namespace lily {

struct TensorInfo {
  enum class Part : std::uint8_t { Text, Vision, Mtp };
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> dims;
  std::uint64_t bytes = 0;
  std::string file;
  Part part = Part::Text;
};

struct CheckpointReport {
  Checkpoint checkpoint;            // opened, so sound as far as headers tell
  std::vector<TensorInfo> tensors;  // sorted by name, layers in numerical order
  std::size_t n_files = 0;
  std::size_t n_modules_4bit = 0, n_modules_8bit = 0;
  std::uint64_t n_parameters = 0;  // of the text part, quantised weights counted as weights
};

// Errors as those of Checkpoint::open(). An empty path means the embedded model.
Result<CheckpointReport> inspect_checkpoint(const std::filesystem::path& directory);

}  // namespace lily
