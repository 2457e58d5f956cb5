// y[i] = x[i] * (mean_j x[j]^2 + eps)^(-1/2) * weight[i]
// x, weight, y float32 [n]; the weight is applied as MLX stores it (the vendor's 1 + w is already inside), eps =
// kRmsEps (model/shape.h). The mean is float32 or wider. n = D for the layers' norms, head_dim for the q and k heads,
// gdn_head_dim for the output norm of Gated DeltaNet. y may be x.
// Tolerance: kFloat32.
#pragma once

#include "ops/tolerance.h"

namespace lily::ops {

inline constexpr Tolerance kRmsNormTolerance = kFloat32;

}  // namespace lily::ops
