// Causal grouped-query attention of one token with an output gate.
//   kv head of query head a:  b = a / (H / K)
//   score[a, s] = sum_i q[a, i] * keys[s, b, i] / sqrt(head_dim)        s = 0 .. n - 1, the token itself is s = n - 1
//   p[a, :]     = softmax(score[a, :])
//   out[a, i]   = sigmoid(gate[a, i]) * sum_s p[a, s] * values[s, b, i]
// q [H, head_dim] float32, already normalised and rotated; gate [H, head_dim] float32 as projected (not normalised);
// keys and values [n, K, head_dim] bfloat16 (keys normalised and rotated before they are rounded); out [H, head_dim]
// float32. Softmax is float32 with the maximum subtracted; any order of the positions (online softmax) is as good, as
// long as it depends on n alone.
// The projection that feeds it interleaves by head: row a * 2 * head_dim + i is the query, the head_dim rows after
// those of one head are its gate.
// Tolerance: kFloat32 for float32 q and p; kBfloat16 where q or p is rounded to bfloat16.
#pragma once

#include "ops/tolerance.h"

namespace lily::ops {

struct AttentionHeads {
  int n_q_heads;   // H
  int n_kv_heads;  // K
  int head_dim;
};

inline constexpr Tolerance kAttentionTolerance = kFloat32;

}  // namespace lily::ops
