// Causal grouped-query attention: all scores, a softmax, a weighted sum. The query heads that share a kv head are
// taken together, so that a few cached vectors at a time are widened once for all of them.
#include "backend/ref/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/ref/vector.h"
#include "base/check.h"
#include "ops/activations.h"

namespace lily::ref {
namespace {

constexpr std::int64_t kTile = 16;  // cached vectors widened at a time

// Replaces scores [n] by softmax(scale * scores).
void softmax(std::span<float> scores, float scale) {
  const float highest = scale * *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (float& score : scores) {
    score = std::exp(scale * score - highest);
    sum += double{score};
  }
  const float inverse = static_cast<float>(1.0 / sum);
  for (float& score : scores) score *= inverse;
}

}  // namespace

void attention(const ops::AttentionHeads& heads, std::span<const float> q, std::span<const float> gate,
               std::span<const std::uint16_t> keys, std::span<const std::uint16_t> values, std::span<float> out) {
  const std::int64_t dim = heads.head_dim, stride = heads.n_kv_heads * dim;
  const std::int64_t n = std::ssize(keys) / stride, group = heads.n_q_heads / heads.n_kv_heads;
  LILY_CHECK(n >= 1 && std::ssize(keys) == n * stride && keys.size() == values.size());
  LILY_CHECK(std::ssize(q) == heads.n_q_heads * dim && gate.size() == q.size() && out.size() == q.size());
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));

  std::vector<float> tile(static_cast<std::size_t>(kTile * dim));
  std::vector<float> scores(static_cast<std::size_t>(group * n));  // [group, n]
  // Calls use(first, count) with the vectors [first, first + count) of one kv head widened into the tile.
  const auto for_each_tile = [&](std::span<const std::uint16_t> cache, std::int64_t kv_head, auto use) {
    for (std::int64_t first = 0; first < n; first += kTile) {
      const std::int64_t count = std::min(kTile, n - first);
      for (std::int64_t s = 0; s < count; ++s)
        widen(cache.data() + (first + s) * stride + kv_head * dim, dim, tile.data() + s * dim);
      use(first, count);
    }
  };
  std::fill(out.begin(), out.end(), 0.0f);
  for (std::int64_t b = 0; b < heads.n_kv_heads; ++b) {
    const float* q_group = q.data() + b * group * dim;
    float* out_group = out.data() + b * group * dim;
    for_each_tile(keys, b, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t a = 0; a < group; ++a)
        dot_rows(q_group + a * dim, tile.data(), count, dim, scores.data() + a * n + first, 1);
    });
    for (std::int64_t a = 0; a < group; ++a)
      softmax(std::span(scores).subspan(static_cast<std::size_t>(a * n), static_cast<std::size_t>(n)), scale);
    for_each_tile(values, b, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t a = 0; a < group; ++a)
        add_weighted_rows(scores.data() + a * n + first, tile.data(), count, dim, out_group + a * dim);
    });
  }
  for (std::size_t i = 0; i < out.size(); ++i) out[i] *= ops::sigmoid(gate[i]);
}

}  // namespace lily::ref
