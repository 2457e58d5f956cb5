// Rotary position embedding of one head, in place: the first `rotary_dim` of head_dim dims turn, the rest stay.
// Half-split pairing: with r = rotary_dim / 2 and j < r
//   angle_j  = position * theta^(-j / r)
//   y[j]     = x[j] * cos(angle_j) - x[j + r] * sin(angle_j)
//   y[j + r] = x[j + r] * cos(angle_j) + x[j] * sin(angle_j)
// Positions reach 262,143, where a float32 angle is off by up to 0.016 rad: angles are computed in double and only
// the cosine and sine are rounded to float32. rope_cos_sin() is that computation, shared by all backends.
// The three position rows of mRoPE are equal for text, so that nothing else is needed.
// Tolerance: kFloat32.
#pragma once

#include <cstdint>
#include <span>

#include "ops/tolerance.h"

namespace lily::ops {

inline constexpr Tolerance kRopeTolerance = kFloat32;

// cos and sin [rotary_dim / 2] of the angles of one position; theta is kRopeTheta (model/shape.h) for every shape.
void rope_cos_sin(std::int64_t position, double theta, std::span<float> cos, std::span<float> sin);

}  // namespace lily::ops
