// A validated checkpoint: configuration, tokenizer and template text, and a view of every text tensor.
// open() checks everything that can be checked without reading the weights (config against shape, index against
// shards, every header, every name, dtype and shape) and allocates nothing large; whoever holds a Checkpoint may rely
// on it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/shape.h"
#include "tensor/view.h"

namespace lily {

struct AttentionWeights {
  AffineView q;               // [H * 2 * head_dim, D], per head 256 query rows then 256 gate rows
  AffineView k, v;            // [K * head_dim, D]
  AffineView o;               // [D, H * head_dim]
  TensorView q_norm, k_norm;  // [head_dim], applied as stored
};

struct GdnWeights {
  AffineView qkv;      // [conv_dim, D], rows q | k | v
  AffineView z;        // [value_dim, D]
  AffineView b, a;     // [value heads, D]
  AffineView out;      // [D, value_dim]
  TensorView conv;     // BF16 [conv_dim, 4, 1]
  TensorView a_log;    // BF16 or F32 [value heads]
  TensorView dt_bias;  // [value heads]
  TensorView norm;     // [gdn_head_dim], plain weight
};

struct MoeWeights {
  AffineView router;                            // [E, D], 8 bit (4 bit in Qwen3.5 conversions)
  AffineView shared_gate;                       // [1, D], the scalar gate of the shared expert, same bits as router
  AffineView gate, up;                          // [E][I, D]
  AffineView down;                              // [E][D, I]
  AffineView shared_gate_proj, shared_up_proj;  // [S, D]
  AffineView shared_down_proj;                  // [D, S]
};

struct LayerWeights {
  TensorView input_norm, post_norm;           // [D]
  std::optional<AttentionWeights> attention;  // exactly one of these two
  std::optional<GdnWeights> gdn;
  MoeWeights moe;
};

struct TextWeights {
  AffineView embed;  // [V, D]
  AffineView head;   // [V, D]
  TensorView norm;   // [D]
  std::vector<LayerWeights> layers;
};

// Small texts of the checkpoint that other layers parse.
struct CheckpointTexts {
  std::string tokenizer_json;
  std::string tokenizer_config;  // empty if the file is absent
  std::string chat_template;
  std::string generation_config;  // empty if the file is absent
};

class Checkpoint {
 public:
  // Directory in MLX layout. Errors: NotFound, Io, Corrupt, Unsupported, with file, key, expected, found, what to do.
  static Result<Checkpoint> open(const std::filesystem::path& directory);
  // The model linked into the binary.
  static Result<Checkpoint> open_embedded();

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const Shape& shape() const;
  const TextWeights& weights() const;
  const CheckpointTexts& texts() const;
  const std::vector<TokenId>& stop_ids() const;   // from generation_config, else config's eos_token_id
  std::int64_t max_positions() const;             // max_position_embeddings
  const std::string& id() const;                  // name for /v1/models: the directory's name, or "lily-tiny"
  const std::string& fingerprint() const;         // hash over config, index and shard headers; keys persistent caches
  std::size_t text_bytes() const;                 // bytes of all text tensors
  const std::vector<std::string>& notes() const;  // harmless oddities: vision skipped, MTP absent, ...

  // Tells the system that these file bytes are not needed again, so that loading never holds two copies in memory.
  void release(const TensorView& view) const;
  void release(const AffineView& view) const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lily
