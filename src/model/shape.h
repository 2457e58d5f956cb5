// The shapes this program runs: one architecture, a handful of compile-time constants. A checkpoint that fits none
// of them is refused. Letters used everywhere: T tokens, D hidden, H query heads, K kv heads, E experts, V vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tensor/view.h"

namespace lily {

using TokenId = std::int32_t;

inline constexpr float kRmsEps = 1e-6f;
inline constexpr double kRopeTheta = 1e7;

struct Shape {
  std::string_view name;
  int hidden;    // D
  int n_layers;  // layer i is full attention iff (i + 1) % attention_interval == 0, else Gated DeltaNet
  int attention_interval;
  int n_q_heads;    // H
  int n_kv_heads;   // K; query head a reads kv head a / (H / K)
  int head_dim;     // of attention
  int rotary_dim;   // leading dims of head_dim that rotate, half-split pairing
  int gdn_k_heads;  // key/query heads; value head j uses key head j / (value heads / key heads)
  int gdn_v_heads;
  int gdn_head_dim;  // of keys and values alike
  int conv_width;    // causal depthwise, newest sample last
  int n_experts;     // E
  int n_active;      // experts a token is routed to
  int expert_dim;    // I, inner width of a routed expert
  int shared_dim;    // inner width of the shared expert
  int vocab;         // V, rows of embedding and head; ids beyond the tokenizer's are masked
  std::int64_t max_positions;

  constexpr bool is_attention(int layer) const { return (layer + 1) % attention_interval == 0; }
  constexpr int n_attention_layers() const { return n_layers / attention_interval; }
  constexpr int n_gdn_layers() const { return n_layers - n_attention_layers(); }
  constexpr int attention_index(int layer) const { return layer / attention_interval; }    // among attention layers
  constexpr int gdn_index(int layer) const { return layer - layer / attention_interval; }  // among GDN layers
  constexpr int q_dim() const { return n_q_heads * head_dim; }
  constexpr int kv_dim() const { return n_kv_heads * head_dim; }
  constexpr int gdn_key_dim() const { return gdn_k_heads * gdn_head_dim; }
  constexpr int gdn_value_dim() const { return gdn_v_heads * gdn_head_dim; }
  constexpr int conv_dim() const { return 2 * gdn_key_dim() + gdn_value_dim(); }  // channels q | k | v
};

// Qwen3.6-35B-A3B, and Qwen3.5-35B-A3B which has the same shape.
inline constexpr Shape kQwen36_35B_A3B{.name = "Qwen3.6-35B-A3B",
                                       .hidden = 2048,
                                       .n_layers = 40,
                                       .attention_interval = 4,
                                       .n_q_heads = 16,
                                       .n_kv_heads = 2,
                                       .head_dim = 256,
                                       .rotary_dim = 64,
                                       .gdn_k_heads = 16,
                                       .gdn_v_heads = 32,
                                       .gdn_head_dim = 128,
                                       .conv_width = 4,
                                       .n_experts = 256,
                                       .n_active = 8,
                                       .expert_dim = 512,
                                       .shared_dim = 512,
                                       .vocab = 248320,
                                       .max_positions = 262144};

// The small model that ships in the repository.
inline constexpr Shape kLilyTiny{.name = "LilyTiny",
                                 .hidden = 256,
                                 .n_layers = 8,
                                 .attention_interval = 4,
                                 .n_q_heads = 16,
                                 .n_kv_heads = 2,
                                 .head_dim = 256,
                                 .rotary_dim = 64,
                                 .gdn_k_heads = 2,
                                 .gdn_v_heads = 4,
                                 .gdn_head_dim = 128,
                                 .conv_width = 4,
                                 .n_experts = 32,
                                 .n_active = 8,
                                 .expert_dim = 64,
                                 .shared_dim = 64,
                                 .vocab = 2048,
                                 .max_positions = 32768};

inline constexpr std::array<const Shape*, 2> kShapes{&kQwen36_35B_A3B, &kLilyTiny};

}  // namespace lily
