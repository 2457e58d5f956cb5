// Gated delta rule of one token and one value head. Value head j reads key and query head j / (value heads / key
// heads).
//
// Key and query come from the short convolution and are first normalised (d = gdn_head_dim):
//   k <- k * (sum_i k[i]^2 + eps)^(-1/2)
//   q <- q * (sum_i q[i]^2 + eps)^(-1/2) / sqrt(d)                       eps = kL2NormEps
// Then, with S [d_k, d_v] the head's memory, zero at the start:
//   S     <- exp(g) * S               decay first: what is read below has decayed already
//   p     =  S^T k                    what the memory holds at k
//   delta =  beta * (v - p)
//   S     <- S + k delta^T
//   o     =  S^T q                    reads the updated memory
// g = log_decay(a, a_log, dt_bias) (activations.h), beta = sigmoid(b). Everything is float32, S included: a bfloat16 S
// forgets slow decays (tests/unit/ops/gated_delta_test.cpp shows it over 100,000 steps). The chunked form
// (docs/model.md) is equal in exact arithmetic; an implementation that uses it cuts chunks at absolute positions.
//
// The layer's output is, per value head, y = rms_norm(o, norm) * silu(z); the norm weight is plain.
// Tolerance: kFloat32 for one step, kGatedDeltaTolerance for whole sequences.
#pragma once

#include "ops/tolerance.h"

namespace lily::ops {

// On the sum of squares, as in transformers, flash-linear-attention and mlx-lm since 0.32; older mlx-lm versions added
// 1e-6 to the mean instead (128e-6 on the sum). The two differ only for vectors whose sum of squares is near 1e-4.
inline constexpr float kL2NormEps = 1e-6f;

inline constexpr Tolerance kGatedDeltaTolerance{1e-4f, 1e-7f};

}  // namespace lily::ops
