// Causal grouped-query attention: all scores, a softmax, a weighted sum. The query heads that share a kv head are
// taken together, so that a cached vector is widened once for all of them.
#include "backend/ref/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/ref/vector.h"
#include "base/check.h"
#include "ops/activations.h"

namespace lily::ref {
namespace {

// Replaces scores [n] by their softmax.
void softmax(std::span<float> scores) {
  const float highest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (float& score : scores) {
    score = std::exp(score - highest);
    sum += double{score};
  }
  const float scale = static_cast<float>(1.0 / sum);
  for (float& score : scores) score *= scale;
}

}  // namespace

void attention(const ops::AttentionHeads& heads, std::span<const float> q, std::span<const float> gate,
               std::span<const std::uint16_t> keys, std::span<const std::uint16_t> values, std::span<float> out) {
  const std::int64_t dim = heads.head_dim, stride = heads.n_kv_heads * dim;
  const std::int64_t n = std::ssize(keys) / stride, group = heads.n_q_heads / heads.n_kv_heads;
  LILY_CHECK(n >= 1 && std::ssize(keys) == n * stride && keys.size() == values.size());
  LILY_CHECK(std::ssize(q) == heads.n_q_heads * dim && gate.size() == q.size() && out.size() == q.size());
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));

  std::vector<float> wide(static_cast<std::size_t>(dim));
  std::vector<float> scores(static_cast<std::size_t>(group * n));  // [group, n]
  std::fill(out.begin(), out.end(), 0.0f);
  for (std::int64_t b = 0; b < heads.n_kv_heads; ++b) {
    const float* q_group = q.data() + b * group * dim;
    float* out_group = out.data() + b * group * dim;
    for (std::int64_t s = 0; s < n; ++s) {
      widen(keys.data() + s * stride + b * dim, dim, wide.data());
      for (std::int64_t a = 0; a < group; ++a)
        scores[static_cast<std::size_t>(a * n + s)] = scale * dot(q_group + a * dim, wide.data(), dim);
    }
    for (std::int64_t a = 0; a < group; ++a)
      softmax(std::span(scores).subspan(static_cast<std::size_t>(a * n), static_cast<std::size_t>(n)));
    for (std::int64_t s = 0; s < n; ++s) {
      widen(values.data() + s * stride + b * dim, dim, wide.data());
      for (std::int64_t a = 0; a < group; ++a)
        add_scaled(out_group + a * dim, scores[static_cast<std::size_t>(a * n + s)], wide.data(), dim);
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) out[i] *= ops::sigmoid(gate[i]);
}

}  // namespace lily::ref
