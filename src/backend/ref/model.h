// The model as the reference holds it, and its blocks. docs/model.md is the same text in mathematics.
// Buffers of tokens are [T, n], row-major; each row of a result depends on its own token and on the state alone, so
// that cutting a prompt into chunks cannot change anything.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/ref/affine_linear.h"
#include "backend/ref/experts.h"
#include "backend/ref/state.h"
#include "model/checkpoint.h"
#include "model/shape.h"

namespace lily::ref {

struct AttentionLayer {
  AffineMatrix q;  // [H * 2 * head_dim, D], per head query rows, then gate rows
  AffineMatrix k, v, o;
  std::vector<float> q_norm, k_norm;  // [head_dim]
};

struct GdnLayer {
  AffineMatrix qkv, z, b, a, out;
  std::vector<float> conv;            // [conv_dim, conv_width]
  std::vector<float> a_log, dt_bias;  // [gdn_v_heads]
  std::vector<float> norm;            // [gdn_head_dim]
};

struct MoeLayer {
  AffineMatrix router;       // [E, D]
  AffineMatrix shared_gate;  // [1, D]
  ExpertMatrices routed, shared;
};

struct Layer {
  std::vector<float> input_norm, post_norm;  // [D]
  std::optional<AttentionLayer> attention;   // exactly one of these two
  std::optional<GdnLayer> gdn;
  MoeLayer moe;
};

class Model {
 public:
  using Progress = std::function<void(std::size_t done_bytes, std::size_t total_bytes)>;

  // The bytes behind the weights outlive the model. Small models are kept as floats beside them.
  Model(const Shape& shape, const TextWeights& weights, const Progress& progress);

  const Shape& shape() const { return shape_; }
  std::size_t weight_bytes() const { return weight_bytes_; }  // packed

  // Runs the tokens after those of the state. hidden [T, D]: the vectors after the final norm.
  void forward(std::span<const TokenId> tokens, State& state, std::span<float> hidden) const;
  // logits [T, V] of hidden [T, D]; nothing masked.
  void logits(std::span<const float> hidden, std::span<float> logits) const { head_.apply(hidden, logits); }

 private:
  Shape shape_;
  std::size_t weight_bytes_ = 0;
  AffineMatrix embed_, head_;
  std::vector<float> norm_;
  std::vector<Layer> layers_;
};

// y [T, D] = block(x [T, D]); x is normalised already, the residual is added by the caller.
void attention_block(const Shape& shape, const AttentionLayer& layer, std::int64_t first_position,
                     std::span<const float> x, KvCache& cache, std::span<float> y);
void gdn_block(const Shape& shape, const GdnLayer& layer, std::span<const float> x, GdnState& state,
               std::span<float> y);
void moe_block(const Shape& shape, const MoeLayer& layer, std::span<const float> x, std::span<float> y);

}  // namespace lily::ref
