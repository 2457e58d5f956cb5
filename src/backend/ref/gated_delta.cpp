// The gated delta rule, one token: decay, read, correct, read again.
#include "backend/ref/gated_delta.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/ref/vector.h"
#include "base/check.h"

namespace lily::ref {

void gated_delta_step(std::span<const float> q, std::span<const float> k, std::span<const float> v, float log_decay,
                      float beta, std::span<float> memory, std::span<float> out) {
  const std::size_t d_k = k.size(), d_v = v.size();
  LILY_CHECK(q.size() == d_k && memory.size() == d_k * d_v && out.size() == d_v);
  const std::int64_t n_k = std::ssize(k), n_v = std::ssize(v);

  const float decay = std::exp(log_decay);
  for (float& value : memory) value *= decay;

  std::vector<float> delta(d_v, 0.0f);  // first S^T k, then beta * (v - S^T k)
  add_weighted_rows(k.data(), memory.data(), n_k, n_v, delta.data());
  for (std::size_t j = 0; j < d_v; ++j) delta[j] = beta * (v[j] - delta[j]);

  for (std::size_t i = 0; i < d_k; ++i) add_scaled(memory.data() + i * d_v, k[i], delta.data(), n_v);
  std::fill(out.begin(), out.end(), 0.0f);
  add_weighted_rows(q.data(), memory.data(), n_k, n_v, out.data());
}

}  // namespace lily::ref
