// Writes a checkpoint with random weights as MLX would have written it: names, shapes, shard split, unpadded headers,
// data in another order than the names, index and configuration. Streamed: needs some tens of megabytes of memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/error.h"
#include "model/shape.h"

namespace lily {

struct SynthSpec {
  const Shape* shape = &kLilyTiny;
  std::uint64_t seed = 1;
  bool vision = false;  // also the tensors of the vision tower (real shape only)
  std::uint64_t shard_bytes = std::uint64_t{5} << 30;
  std::filesystem::path tokenizer;      // a tokenizer.json to use; empty: a made-up one of the right size
  std::filesystem::path chat_template;  // a template to use; empty: LilyTiny's
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // bytes of weights; may be empty
};

struct SynthResult {
  std::uint64_t weight_bytes = 0;
  std::size_t n_tensors = 0;
  std::size_t n_shards = 0;
};

// `directory` is created; if it exists it must be empty. The same spec gives the same bytes. On an error (Io when the
// disk fills up, before the first byte if that can be foreseen) everything written is removed.
Result<SynthResult> write_synthetic_checkpoint(const std::filesystem::path& directory, const SynthSpec& spec);

}  // namespace lily
