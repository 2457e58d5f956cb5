// Mixture of experts: router, chosen experts in the router's order, shared expert last.
#include "backend/ref/model.h"
#include "backend/ref/router.h"
#include "backend/ref/rows.h"
#include "ops/activations.h"

namespace lily::ref {

void moe_block(const Shape& shape, const MoeLayer& layer, std::span<const float> x, std::span<float> y) {
  const std::size_t hidden = static_cast<std::size_t>(shape.hidden);
  const std::size_t n_tokens = x.size() / hidden;
  const std::vector<float> logits = apply(layer.router, x);            // [T, E]
  const std::vector<float> shared_gate = apply(layer.shared_gate, x);  // [T]

  std::vector<std::int32_t> ids(static_cast<std::size_t>(shape.n_active));
  std::vector<float> weights(ids.size()), out(hidden);
  for (std::size_t t = 0; t < n_tokens; ++t) {
    const auto x_token = row(x, t, hidden);
    const auto y_token = row(y, t, hidden);
    const auto add = [&](float weight) {
      for (std::size_t d = 0; d < hidden; ++d) y_token[d] += weight * out[d];
    };
    for (float& value : y_token) value = 0;
    route(row(std::span(logits), t, static_cast<std::size_t>(shape.n_experts)), ids, weights);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      expert(layer.routed, ids[i], x_token, out);
      add(weights[i]);
    }
    expert(layer.shared, 0, x_token, out);
    add(ops::sigmoid(shared_gate[t]));
  }
}

}  // namespace lily::ref
