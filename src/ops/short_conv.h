// Depthwise causal convolution over time, then SiLU, of one token.
//   y[c] = silu( sum_{m=0..W-1} weight[c, m] * x_{t-W+1+m}[c] )         weight[c, W - 1] multiplies the newest sample
// x_t, y [channels] float32; weight [channels, W]; no bias; samples before the sequence's start are 0. The tail is the
// last W - 1 vectors x before SiLU, oldest first, and is the layer's state beside the delta memory. SiLU applies to
// all channels: q, k and v alike.
// The tail is float32 (it is 1 / 20 of the memory's size and costs nothing).
// Tolerance: kFloat32.
#pragma once

#include "ops/tolerance.h"

namespace lily::ops {

inline constexpr Tolerance kShortConvTolerance = kFloat32;

}  // namespace lily::ops
