// y[o] = sum_i W[o, i] * x[i], where W is stored in MLX's affine form (tensor/view.h):
//   W[o, i] = scale[o, i / 64] * code[o, i] + bias[o, i / 64]
// x [in] -> y [out]; scale and bias are bfloat16 as stored, scales may be negative, bias is not a multiple of scale.
// Contract: W is exact in float32 (never requantised, never rounded to bfloat16); products and sums are float32 or
// wider. The equivalent algebra per group, scale * sum(code * x) + bias * sum(x), is as good.
// Used for every matrix of the model. The embedding is the same W read by rows: y = W[token].
// Tolerance: kFloat32 for float32 activations, kBfloat16 where x is rounded to bfloat16, kInt8 where it is quantised.
// The router and the shared expert's gate always take float32 x.
#pragma once

#include "ops/tolerance.h"
#include "tensor/view.h"

namespace lily::ops {

inline constexpr Tolerance kLinearTolerance = kFloat32;

// Value of one element, the definition itself.
inline float affine_value(const AffineView& w, std::int64_t expert, std::int64_t o, std::int64_t i) {
  const std::int64_t row = expert * w.out + o;
  const std::int64_t per_word = 32 / w.bits;
  const std::uint32_t word = w.weight.load_u32(row * (w.in / per_word) + i / per_word);
  const std::uint32_t code = (word >> (w.bits * (i % per_word))) & ((1u << w.bits) - 1u);
  const std::int64_t group = row * (w.in / 64) + i / 64;
  return w.scales.load_float(group) * static_cast<float>(code) + w.biases.load_float(group);
}

}  // namespace lily::ops
