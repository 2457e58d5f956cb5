// How the tensors of a checkpoint are spread over files, and the texts that say so: headers and index.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/synth_weights.h"

namespace lily {

struct ShardPlan {
  std::string name;
  std::vector<const SynthTensor*> tensors;  // in module order
};

std::uint64_t total_bytes(const std::vector<SynthTensor>& tensors);

// Greedy, as MLX does: a tensor that would pass the limit opens the next shard. Points into `tensors`.
std::vector<ShardPlan> plan_shards(const std::vector<SynthTensor>& tensors, std::uint64_t limit);

// model.safetensors.index.json.
std::string write_index(const std::vector<ShardPlan>& shards, std::uint64_t total_size);

// MLX writes data in the order of a hash map; here it is the order of a seeded hash of the names.
std::vector<const SynthTensor*> data_order(const ShardPlan& shard, std::uint64_t seed);

// Length and JSON, names sorted, no padding: the data begins at any byte.
std::string shard_header(const std::vector<const SynthTensor*>& order);

}  // namespace lily
