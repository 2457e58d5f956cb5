// Pure functions from tensors to files and texts.
#include "model/synth_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "model/indented_json.h"

namespace lily {

std::uint64_t total_bytes(const std::vector<SynthTensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const SynthTensor& tensor) { return sum + tensor.bytes(); });
}

std::vector<ShardPlan> plan_shards(const std::vector<SynthTensor>& tensors, std::uint64_t limit) {
  std::vector<ShardPlan> shards(1);
  std::uint64_t filled = 0;
  for (const SynthTensor& tensor : tensors) {
    if (filled + tensor.bytes() > limit && !shards.back().tensors.empty()) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().tensors.push_back(&tensor);
    filled += tensor.bytes();
  }
  if (shards.size() == 1) {
    shards[0].name = "model.safetensors";
    return shards;
  }
  for (std::size_t i = 0; i < shards.size(); ++i)
    shards[i].name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  return shards;
}

std::string write_index(const std::vector<ShardPlan>& shards, std::uint64_t total_size) {
  std::map<std::string, std::string> sorted;
  for (const ShardPlan& shard : shards)
    for (const SynthTensor* tensor : shard.tensors) sorted.emplace(tensor->name, shard.name);
  json::Object weight_map;
  for (const auto& [tensor, shard] : sorted) weight_map.emplace(tensor, shard);
  return indented_json(
      json::Object{{"metadata", json::Object{{"total_size", total_size}}}, {"weight_map", std::move(weight_map)}});
}

std::vector<const SynthTensor*> data_order(const ShardPlan& shard, std::uint64_t seed) {
  std::vector<const SynthTensor*> order = shard.tensors;
  std::ranges::sort(order, std::less<>(), [&](const SynthTensor* tensor) {
    return std::pair(synth_stream(~seed, tensor->name), std::string_view(tensor->name));
  });
  return order;
}

std::string shard_header(const std::vector<const SynthTensor*>& order) {
  std::map<std::string, json::Object> entries;
  std::uint64_t offset = 0;
  for (const SynthTensor* tensor : order) {
    json::Array shape(tensor->dims.begin(), tensor->dims.end());
    entries.emplace(tensor->name, json::Object{{"data_offsets", json::Array{offset, offset + tensor->bytes()}},
                                               {"dtype", tensor->packed() ? "U32" : "BF16"},
                                               {"shape", std::move(shape)}});
    offset += tensor->bytes();
  }
  json::Object header{{"__metadata__", json::Object{{"format", "mlx"}}}};
  for (auto& [name, entry] : entries) header.emplace(name, std::move(entry));
  const std::string text = json::dump(header);
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace lily
