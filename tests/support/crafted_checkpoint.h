// A small checkpoint directory made to be damaged: all of LilyTiny's tensors with zeros for data (the files are
// sparse, so that writing one costs nothing), and every text replaceable.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/config.h"
#include "model/synth_weights.h"
#include "support/temp_directory.h"

namespace lily {

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

// 8 bytes of length, the header, then `data_bytes` zeros.
inline void write_safetensors(const std::filesystem::path& path, std::string_view header, std::uint64_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof length);
  text += header;
  write_text(path, text);
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(text.size() + data_bytes)), 0);
}

struct CraftedTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> dims;
  int shard = 0;

  std::uint64_t bytes() const {
    std::uint64_t n = dtype == "BF16" || dtype == "F16" ? 2 : 4;
    for (const std::int64_t size : dims) n *= static_cast<std::uint64_t>(size);
    return n;
  }
};

class CraftedCheckpoint {
 public:
  CraftedCheckpoint() {
    for (const SynthTensor& tensor : synth_tensors(kLilyTiny, false, 1))
      tensors.push_back({tensor.name, tensor.packed() ? "U32" : "BF16", tensor.dims,
                         tensors.size() < 150 ? 0 : 1});  // the cut falls inside a module
    texts["config.json"] = write_config(kLilyTiny);
    texts["generation_config.json"] = write_generation_config(kLilyTiny);
    texts["tokenizer.json"] = "{}";
    texts["chat_template.jinja"] = "x";
  }

  static std::string shard_name(int shard) {
    return "model-0000" + std::to_string(shard + 1) + "-of-00002.safetensors";
  }

  CraftedTensor& tensor(std::string_view name) {
    const auto found = std::ranges::find(tensors, name, &CraftedTensor::name);
    EXPECT_NE(found, tensors.end()) << name;
    return *found;
  }
  void remove(std::string_view name) {
    std::erase_if(tensors, [&](const CraftedTensor& t) { return t.name == name; });
  }
  void replace(const std::string& file, std::string_view from, std::string_view to) {
    const std::size_t at = texts[file].find(from);
    ASSERT_NE(at, std::string::npos) << from;
    texts[file].replace(at, from.size(), to);
  }

  // Writes everything to path().
  void write() {
    json::Object weight_map;
    for (int shard = 0; shard < 2; ++shard) {
      json::Object header{{"__metadata__", json::Object{{"format", "mlx"}}}};
      std::uint64_t offset = 0;
      for (const CraftedTensor& tensor : tensors) {
        if (tensor.shard != shard) continue;
        header.emplace(tensor.name, json::Object{{"dtype", tensor.dtype},
                                                 {"shape", json::Array(tensor.dims.begin(), tensor.dims.end())},
                                                 {"data_offsets", json::Array{offset, offset + tensor.bytes()}}});
        offset += tensor.bytes();
        weight_map.emplace(tensor.name, shard_name(shard));
      }
      write_safetensors(path() / shard_name(shard), json::dump(header), offset);
    }
    texts.emplace("model.safetensors.index.json",
                  json::dump(json::Object{{"metadata", json::Object()}, {"weight_map", weight_map}}));
    for (const auto& [name, text] : texts) write_text(path() / name, text);
  }

  const std::filesystem::path& path() const { return directory_.path(); }

  std::vector<CraftedTensor> tensors;
  std::map<std::string, std::string> texts;

 private:
  TempDirectory directory_;
};

}  // namespace lily
