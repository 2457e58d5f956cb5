// Random weights in memory, in the layout of a checkpoint: for tests of blocks and backends that need no files.
// Values keep activations near 1; about half of the scales are negative and every buffer starts at an odd address, as
// in real files.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "model/checkpoint.h"
#include "model/shape.h"
#include "tensor/view.h"

namespace lily::testing {

// All features of the architecture in half a million weights: GQA, two GDN value heads a key head, ties to real widths.
inline constexpr Shape kSmallShape{.name = "Small",
                                   .hidden = 128,
                                   .n_layers = 4,
                                   .attention_interval = 4,
                                   .n_q_heads = 4,
                                   .n_kv_heads = 2,
                                   .head_dim = 64,
                                   .rotary_dim = 16,
                                   .gdn_k_heads = 2,
                                   .gdn_v_heads = 4,
                                   .gdn_head_dim = 32,
                                   .conv_width = 4,
                                   .n_experts = 12,
                                   .n_active = 3,
                                   .expert_dim = 64,
                                   .shared_dim = 64,
                                   .vocab = 160,
                                   .max_positions = 4096};

class RandomWeights {
 public:
  explicit RandomWeights(const Shape& shape, std::uint64_t seed = 1) : shape_(shape), random_(seed) { build(); }
  RandomWeights(const RandomWeights&) = delete;
  RandomWeights& operator=(const RandomWeights&) = delete;

  const Shape& shape() const { return shape_; }
  const TextWeights& weights() const { return weights_; }

  // A quantised matrix whose rows have about unit gain; owned by this object.
  AffineView affine(int bits, std::int64_t n_experts, std::int64_t out, std::int64_t in) {
    AffineView view{
        .bits = bits, .n_experts = n_experts, .out = out, .in = in, .weight = {}, .scales = {}, .biases = {}};
    const std::int64_t rows = n_experts * out, groups = in / kGroupSize;
    view.weight = tensor(Dtype::U32, {n_experts, out, in * bits / 32});
    for (std::size_t i = 0; i < view.weight.bytes; ++i)
      mutable_bytes(view.weight)[i] = static_cast<std::byte>(random_());
    view.scales = tensor(Dtype::BF16, {n_experts, out, groups});
    view.biases = tensor(Dtype::BF16, {n_experts, out, groups});
    const float codes = static_cast<float>((1 << bits) - 1);
    const float step = std::sqrt(12.0f / static_cast<float>(in)) / codes;  // of uniform codes: variance 1 / in
    for (std::int64_t i = 0; i < rows * groups; ++i) {
      const float scale = (random_() & 1u ? step : -step) * uniform(0.7f, 1.3f);
      store(view.scales, i, scale);
      store(view.biases, i, -scale * codes * uniform(0.45f, 0.55f));
    }
    return view;
  }

  // BF16 values uniform in [low, high).
  TensorView vector(std::vector<std::int64_t> dims, float low, float high) {
    TensorView view = tensor(Dtype::BF16, dims);
    for (std::int64_t i = 0; i < view.count(); ++i) store(view, i, uniform(low, high));
    return view;
  }

  float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(random_); }

 private:
  TensorView tensor(Dtype dtype, const std::vector<std::int64_t>& dims) {
    TensorView view;
    view.dtype = dtype;
    view.rank = static_cast<int>(dims.size());
    for (std::size_t i = 0; i < dims.size(); ++i) view.dims[i] = dims[i];
    view.bytes = static_cast<std::size_t>(view.count() * dtype_bytes(dtype));
    buffers_.emplace_back(view.bytes + 1);
    view.data = buffers_.back().data() + 1;
    return view;
  }
  static std::byte* mutable_bytes(const TensorView& view) { return const_cast<std::byte*>(view.data); }
  static void store(const TensorView& view, std::int64_t i, float value) {
    const std::uint16_t bits = float_to_bf16(value);
    std::memcpy(mutable_bytes(view) + 2 * i, &bits, sizeof bits);
  }
  TensorView norm(int n) { return vector({n}, 0.8f, 1.2f); }
  AffineView matrix(std::int64_t out, std::int64_t in) { return affine(4, 1, out, in); }

  void build() {
    const Shape& s = shape_;
    weights_.embed = matrix(s.vocab, s.hidden);
    weights_.head = matrix(s.vocab, s.hidden);
    weights_.norm = norm(s.hidden);
    for (int i = 0; i < s.n_layers; ++i) {
      LayerWeights layer;
      layer.input_norm = norm(s.hidden);
      layer.post_norm = norm(s.hidden);
      if (s.is_attention(i)) {
        layer.attention = AttentionWeights{.q = matrix(2 * s.q_dim(), s.hidden),
                                           .k = matrix(s.kv_dim(), s.hidden),
                                           .v = matrix(s.kv_dim(), s.hidden),
                                           .o = matrix(s.hidden, s.q_dim()),
                                           .q_norm = norm(s.head_dim),
                                           .k_norm = norm(s.head_dim)};
      } else {
        layer.gdn = GdnWeights{.qkv = matrix(s.conv_dim(), s.hidden),
                               .z = matrix(s.gdn_value_dim(), s.hidden),
                               .b = matrix(s.gdn_v_heads, s.hidden),
                               .a = matrix(s.gdn_v_heads, s.hidden),
                               .out = matrix(s.hidden, s.gdn_value_dim()),
                               .conv = vector({s.conv_dim(), s.conv_width, 1}, -0.7f, 0.7f),
                               .a_log = vector({s.gdn_v_heads}, -2.0f, 1.0f),
                               .dt_bias = vector({s.gdn_v_heads}, -4.0f, 0.0f),
                               .norm = norm(s.gdn_head_dim)};
      }
      layer.moe = MoeWeights{.router = affine(8, 1, s.n_experts, s.hidden),
                             .shared_gate = affine(8, 1, 1, s.hidden),
                             .gate = affine(4, s.n_experts, s.expert_dim, s.hidden),
                             .up = affine(4, s.n_experts, s.expert_dim, s.hidden),
                             .down = affine(4, s.n_experts, s.hidden, s.expert_dim),
                             .shared_gate_proj = matrix(s.shared_dim, s.hidden),
                             .shared_up_proj = matrix(s.shared_dim, s.hidden),
                             .shared_down_proj = matrix(s.hidden, s.shared_dim)};
      weights_.layers.push_back(std::move(layer));
    }
  }

  Shape shape_;
  std::mt19937_64 random_;
  std::deque<std::vector<std::byte>> buffers_;
  TextWeights weights_;
};

// n values uniform in [-range, range).
inline std::vector<float> random_floats(std::size_t n, std::uint64_t seed, float range = 1.0f) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> distribution(-range, range);
  std::vector<float> values(n);
  for (float& value : values) value = distribution(random);
  return values;
}

inline std::vector<TokenId> random_tokens(std::size_t n, TokenId vocab, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % static_cast<std::uint64_t>(vocab));
  return tokens;
}

}  // namespace lily::testing
