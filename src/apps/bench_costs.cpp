#include "apps/bench_costs.h"

#include <cmath>

namespace lily::apps {
namespace {

constexpr double kBytes4 = 0.5 + 4.0 / kGroupSize;  // code, and a bfloat16 scale and bias for each group
constexpr double kBytes8 = 1.0 + 4.0 / kGroupSize;
constexpr double kBf16 = 2.0;
constexpr double kF32 = 4.0;
// Decay, prediction, correction, write and read of the delta rule: operations for each element of the state.
constexpr double kGdnFlopsPerElement = 7.0;

double expert_weights(const Shape& s) {
  return 3.0 * s.expert_dim * s.hidden;
}

// Weights of the matrices that every token uses, but the head.
double dense4_weights(const Shape& s) {
  const double attention = 2.0 * s.q_dim() + 2.0 * s.kv_dim() + s.q_dim();
  const double gdn = s.conv_dim() + s.gdn_value_dim() + 2.0 * s.gdn_v_heads + s.gdn_value_dim();
  const double shared = 3.0 * s.shared_dim;
  return s.hidden * (attention * s.n_attention_layers() + gdn * s.n_gdn_layers() + shared * s.n_layers);
}

double dense8_weights(const Shape& s) {
  return static_cast<double>(s.n_layers) * s.hidden * (s.n_experts + 1);
}

double head_weights(const Shape& s) {
  return static_cast<double>(s.vocab) * s.hidden;
}

// One row of the embedding, norms, convolutions and gate parameters.
double small_bytes(const Shape& s) {
  const double norms = 2.0 * s.hidden * s.n_layers + s.hidden + 2.0 * s.head_dim * s.n_attention_layers();
  const double gdn = static_cast<double>(s.conv_dim()) * s.conv_width + 2.0 * s.gdn_v_heads + s.gdn_head_dim;
  return s.hidden * kBytes4 + kBf16 * (norms + gdn * s.n_gdn_layers());
}

double gdn_state_elements(const Shape& s) {
  return static_cast<double>(s.n_gdn_layers()) * s.gdn_v_heads * s.gdn_head_dim * s.gdn_head_dim;
}

}  // namespace

double step_weight_bytes(const Shape& s, int batch) {
  const double untouched = std::pow(1.0 - static_cast<double>(s.n_active) / s.n_experts, batch);
  const double experts = batch == 1 ? s.n_active : s.n_experts * (1.0 - untouched);
  return kBytes4 * (dense4_weights(s) + head_weights(s) + s.n_layers * experts * expert_weights(s)) +
         kBytes8 * dense8_weights(s) + small_bytes(s);
}

double state_bytes(const Shape& s) {
  const double tail = static_cast<double>(s.n_gdn_layers()) * s.conv_dim() * (s.conv_width - 1);
  return 2.0 * (gdn_state_elements(s) * kF32 + tail * kBf16);
}

double kv_bytes(const Shape& s) {
  return 2.0 * s.kv_dim() * s.n_attention_layers() * kBf16;
}

double decode_step_bytes(const Shape& s, int batch, std::int64_t context) {
  return step_weight_bytes(s, batch) + batch * (state_bytes(s) + kv_bytes(s) * static_cast<double>(context));
}

double prefill_flops(const Shape& s, std::int64_t n_tokens) {
  const auto t = static_cast<double>(n_tokens);
  const double weights = dense4_weights(s) + dense8_weights(s) + s.n_layers * s.n_active * expert_weights(s);
  const double pair = 4.0 * s.q_dim() * s.n_attention_layers();  // scores and values, for each query and key
  return 2.0 * weights * t + 2.0 * head_weights(s) + pair * t * (t + 1) / 2 +
         kGdnFlopsPerElement * gdn_state_elements(s) * t;
}

}  // namespace lily::apps
