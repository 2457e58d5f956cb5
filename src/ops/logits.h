// From the last hidden state to a token.
//   logits [V] = head rms_norm(h, norm), float32
//   rows >= n_tokens (rows of the matrix that belong to no token of the tokenizer) become -infinity
//   greedy: the highest float32 logit, ties to the lower id, -1 if any addressable logit is NaN
// Tolerance: logits as affine_linear.h; masking and the choice kExact.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "ops/tolerance.h"

namespace lily::ops {

inline constexpr Tolerance kLogitsTolerance = kFloat32;

inline void mask_unused_rows(std::span<float> logits, std::int32_t n_tokens) {
  for (std::size_t i = static_cast<std::size_t>(n_tokens); i < logits.size(); ++i)
    logits[i] = -std::numeric_limits<float>::infinity();
}

// logits [n], n >= 1. A NaN must never look like a choice of id 0.
inline std::int32_t greedy_token(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return -1;
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<std::int32_t>(best);
}

}  // namespace lily::ops
