// Gated DeltaNet: projections, short convolution, normalised q and k, gates, delta rule, gated norm, output projection.
#include <cmath>

#include "backend/ref/gated_delta.h"
#include "backend/ref/model.h"
#include "backend/ref/rms_norm.h"
#include "backend/ref/rows.h"
#include "backend/ref/short_conv.h"
#include "ops/activations.h"

namespace lily::ref {

void gdn_block(const Shape& shape, const GdnLayer& layer, std::span<const float> x, GdnState& state,
               std::span<float> y) {
  const std::size_t n_tokens = x.size() / static_cast<std::size_t>(shape.hidden);
  const std::size_t dim = static_cast<std::size_t>(shape.gdn_head_dim);
  const std::size_t k_heads = static_cast<std::size_t>(shape.gdn_k_heads);
  const std::size_t v_heads = static_cast<std::size_t>(shape.gdn_v_heads);
  const std::size_t conv_dim = static_cast<std::size_t>(shape.conv_dim());
  const std::vector<float> c = apply(layer.qkv, x);  // [T, conv_dim]
  const std::vector<float> z = apply(layer.z, x);    // [T, v_heads, dim]
  const std::vector<float> b = apply(layer.b, x);    // [T, v_heads]
  const std::vector<float> a = apply(layer.a, x);    // [T, v_heads]

  std::vector<float> u(conv_dim);                      // [q | k | v] of one token
  std::vector<float> mixed(n_tokens * v_heads * dim);  // [T, v_heads, dim]
  for (std::size_t t = 0; t < n_tokens; ++t) {
    short_conv(row(std::span(c), t, conv_dim), layer.conv, state.tail, u);
    const auto q = std::span(u).first(k_heads * dim);
    const auto k = std::span(u).subspan(k_heads * dim, k_heads * dim);
    const auto v = std::span(u).subspan(2 * k_heads * dim);
    for (std::size_t i = 0; i < k_heads; ++i) {
      l2_norm(row(q, i, dim), 1.0 / std::sqrt(static_cast<double>(dim)));
      l2_norm(row(k, i, dim), 1.0);
    }
    for (std::size_t j = 0; j < v_heads; ++j) {
      const std::size_t i = j / (v_heads / k_heads);
      const float g = ops::log_decay(a[t * v_heads + j], layer.a_log[j], layer.dt_bias[j]);
      const float beta = ops::sigmoid(b[t * v_heads + j]);
      const auto o = row(std::span(mixed), t * v_heads + j, dim);
      gated_delta_step(row(q, i, dim), row(k, i, dim), row(v, j, dim), g, beta,
                       row(std::span(state.memory), j, dim * dim), o);
      rms_norm(o, layer.norm, o);
      for (std::size_t d = 0; d < dim; ++d) o[d] *= ops::silu(z[(t * v_heads + j) * dim + d]);
    }
  }
  layer.out.apply(mixed, y);
}

}  // namespace lily::ref
