// Problems of all files are collected before the refusal: whoever downloads again wants the whole list.
#include "model/shards.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <set>

#include "base/quote.h"
#include "model/foreign.h"
#include "model/strict_json.h"

namespace lily {
namespace {

constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::size_t kMaxIndexBytes = 64u << 20;

using WeightMap = std::map<std::string, std::string, std::less<>>;  // tensor -> shard

struct Index {
  WeightMap weight_map;
  std::optional<std::int64_t> total_size;
};

// Shard names come from a file that may be hostile: they must stay inside the directory and on one line of a message.
bool is_plain_name(std::string_view name) {
  const auto odd = [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '/'; };
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." && std::ranges::none_of(name, odd);
}

Result<Index> parse_index(std::string_view text, const std::string& label) {
  LILY_TRY(const json::Object object, parse_strict_object(text, label));
  const json::Value* map = object.if_contains("weight_map");
  if (map == nullptr || !map->is_object() || map->get_object().empty())
    return fail(ErrorCode::Corrupt, "{}: expected a filled object \"weight_map\"", label);
  Index index;
  for (const auto& [tensor, shard] : map->get_object()) {
    if (!shard.is_string() || !is_plain_name(shard.get_string()))
      return fail(ErrorCode::Corrupt, "{}: tensor {}: expected the name of a file beside the index, found {}", label,
                  quote(tensor), quote(json::dump(shard)));
    index.weight_map.emplace(tensor, shard.get_string());
  }
  if (const json::Value* metadata = object.if_contains("metadata"); metadata != nullptr && metadata->is_object())
    if (const json::Value* size = metadata->get_object().if_contains("total_size"); size != nullptr && size->is_int64())
      index.total_size = size->get_int64();
  return index;
}

// "model-00001-of-00004.safetensors": a file that claims to be part of the model.
bool looks_like_shard(std::string_view name) {
  return name.starts_with("model-") && name.find("-of-") != std::string_view::npos && name.ends_with(".safetensors");
}

// Which files to read, by the index or without one.
Result<std::set<std::string>> shard_names(const ModelFiles& files, const std::optional<Index>& index) {
  std::set<std::string> names;
  if (index) {
    for (const auto& [tensor, shard] : index->weight_map) names.insert(shard);
    return names;
  }
  if (files.has(kSingleName)) return std::set<std::string>{std::string(kSingleName)};
  for (const std::string& name : files.names())
    if (looks_like_shard(name))
      return fail(ErrorCode::NotFound, "{}: no such file, but {} is there; download the index too",
                  files.path(kIndexName), name);
  return tl::unexpected(no_weights_error(files.label(), files.names()));
}

// Drops the directory that every message of a single file begins with.
std::string without_directory(const std::string& message, const std::string& path, const std::string& name) {
  return message.starts_with(path) ? name + message.substr(path.size()) : message;
}

void compare_with_index(const Shard& shard, const WeightMap& map, std::vector<std::string>& problems) {
  std::set<std::string_view> present;
  for (const SafetensorsEntry& entry : shard.header.tensors) {
    present.insert(entry.name);
    const auto listed = map.find(entry.name);
    if (listed == map.end())
      problems.push_back(fmt::format("{} holds {}, which the index does not list", shard.name, quote(entry.name)));
    else if (listed->second != shard.name)
      problems.push_back(
          fmt::format("{} holds {}, which the index puts in {}", shard.name, quote(entry.name), quote(listed->second)));
  }
  for (const auto& [tensor, name] : map)
    if (name == shard.name && !present.contains(tensor))
      problems.push_back(fmt::format("{} lacks {}, which the index puts there", shard.name, quote(tensor)));
}

std::int64_t tensor_bytes(const std::vector<Shard>& shards) {
  std::int64_t bytes = 0;
  for (const Shard& shard : shards)
    for (const SafetensorsEntry& entry : shard.header.tensors) bytes += static_cast<std::int64_t>(entry.data.size());
  return bytes;
}

void note_other_files(const ModelFiles& files, const std::set<std::string>& known, ShardSet& set,
                      std::vector<std::string>& problems) {
  for (const std::string& name : files.names()) {
    if (!name.ends_with(".safetensors") || known.contains(name)) continue;
    if (looks_like_shard(name) && !set.index.empty())
      problems.push_back(fmt::format("{} is not in the index", quote(name)));
    else
      set.notes.push_back(fmt::format("{} is not part of the model and was not read", quote(name)));
  }
}

// Opens every shard; whatever is wrong is collected rather than told one file at a time.
ErrorCode open_shards(ModelFiles& files, const std::set<std::string>& names, ShardSet& set,
                      std::vector<std::string>& problems) {
  ErrorCode code = ErrorCode::Corrupt;
  for (const std::string& name : names) {
    const std::string path = files.path(name);
    const auto report = [&](const Error& error) {
      problems.push_back(without_directory(error.message, path, name));
      if (problems.size() == 1) code = error.code;
    };
    auto file = files.map(name);
    if (!file) {
      report(file.error());
      continue;
    }
    auto header = parse_safetensors(*file, path);
    if (!header)
      report(header.error());
    else
      set.shards.push_back({name, *file, std::move(*header)});
  }
  return code;
}

}  // namespace

std::string first_few(const std::vector<std::string>& items) {
  constexpr std::size_t kShown = 3;
  const std::size_t n = std::min(items.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(n), ", "));
  if (items.size() > n) text += fmt::format(" and {} more", items.size() - n);
  return text;
}

Result<ShardSet> read_shards(ModelFiles& files) try {
  ShardSet set;
  std::optional<Index> index;
  if (files.has(kIndexName)) {
    LILY_TRY(set.index, files.read(kIndexName, kMaxIndexBytes));
    LILY_TRY(index, parse_index(set.index, files.path(kIndexName)));
  }
  LILY_TRY(const std::set<std::string> names, shard_names(files, index));
  std::vector<std::string> problems;
  const ErrorCode code = open_shards(files, names, set, problems);
  note_other_files(files, names, set, problems);
  if (index)
    for (const Shard& shard : set.shards) compare_with_index(shard, index->weight_map, problems);
  if (!problems.empty())
    return fail(code, "{}: {} problem{} with the weight files: {}", files.label(), problems.size(),
                problems.size() == 1 ? "" : "s", first_few(problems));
  const std::int64_t bytes = tensor_bytes(set.shards);
  if (index && index->total_size && *index->total_size != bytes)
    set.notes.push_back(
        fmt::format("the index gives a total of {} bytes, the tensors have {}", *index->total_size, bytes));
  return set;
} catch (const std::exception& exception) {
  return fail(ErrorCode::OutOfMemory, "{}: {}", files.label(), exception.what());
}

}  // namespace lily
