// Gated full attention: projections, head norms, rotation, cache, attention, output gate, output projection.
#include <algorithm>

#include "backend/ref/attention.h"
#include "backend/ref/model.h"
#include "backend/ref/rms_norm.h"
#include "backend/ref/rope.h"
#include "backend/ref/rows.h"
#include "ops/rope.h"
#include "tensor/view.h"

namespace lily::ref {
namespace {

void append_bfloat16(std::vector<std::uint16_t>& cache, std::span<const float> values) {
  for (float value : values) cache.push_back(float_to_bf16(value));
}

}  // namespace

void attention_block(const Shape& shape, const AttentionLayer& layer, std::int64_t first_position,
                     std::span<const float> x, KvCache& cache, std::span<float> y) {
  const std::size_t n_tokens = x.size() / static_cast<std::size_t>(shape.hidden);
  const std::size_t head_dim = static_cast<std::size_t>(shape.head_dim);
  const std::vector<float> q_and_gate = apply(layer.q, x);  // [T, H, 2 * head_dim]
  std::vector<float> k = apply(layer.k, x);                 // [T, K, head_dim]
  const std::vector<float> v = apply(layer.v, x);           // [T, K, head_dim]

  const std::size_t q_dim = static_cast<std::size_t>(shape.q_dim());
  std::vector<float> q(q_dim), gate(q_dim);    // [H, head_dim] of one token
  std::vector<float> mixed(n_tokens * q_dim);  // [T, H, head_dim]
  std::vector<float> cos(static_cast<std::size_t>(shape.rotary_dim / 2)), sin(cos.size());
  for (std::size_t t = 0; t < n_tokens; ++t) {
    ops::rope_cos_sin(first_position + static_cast<std::int64_t>(t), kRopeTheta, cos, sin);
    for (std::size_t a = 0; a < static_cast<std::size_t>(shape.n_q_heads); ++a) {
      const auto both = row(row(std::span(q_and_gate), t, 2 * q_dim), a, 2 * head_dim);
      const auto head = row(std::span(q), a, head_dim);
      rms_norm(both.first(head_dim), layer.q_norm, head);
      rope(head, cos, sin);
      std::ranges::copy(both.last(head_dim), row(std::span(gate), a, head_dim).begin());
    }
    const auto k_token = row(std::span(k), t, static_cast<std::size_t>(shape.kv_dim()));
    for (std::size_t b = 0; b < static_cast<std::size_t>(shape.n_kv_heads); ++b) {
      const auto head = row(k_token, b, head_dim);
      rms_norm(head, layer.k_norm, head);
      rope(head, cos, sin);
    }
    append_bfloat16(cache.keys, k_token);
    append_bfloat16(cache.values, row(std::span(v), t, static_cast<std::size_t>(shape.kv_dim())));
    attention({shape.n_q_heads, shape.n_kv_heads, shape.head_dim}, q, gate, cache.keys, cache.values,
              row(std::span(mixed), t, q_dim));
  }
  layer.o.apply(mixed, y);
}

}  // namespace lily::ref
