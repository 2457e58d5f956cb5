// The weight files of a checkpoint and their index, checked against each other: every tensor where the index says,
// nothing missing, nothing twice, no file cut short. Reads headers only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/model_files.h"
#include "model/safetensors.h"

namespace lily {

struct Shard {
  std::string name;
  std::span<const std::byte> file;
  SafetensorsHeader header;
};

struct ShardSet {
  std::vector<Shard> shards;  // sorted by name
  std::string index;          // text of the index, empty for a single file
  std::vector<std::string> notes;
};

// Either model.safetensors.index.json and its shards, or a single model.safetensors. All that is wrong with the files
// is told in one line: the first few problems and their number.
Result<ShardSet> read_shards(ModelFiles& files);

// "a, b, c and 5 more".
std::string first_few(const std::vector<std::string>& items);

inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

}  // namespace lily
