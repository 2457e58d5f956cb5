// Mixture of experts of one token.
//   expert_e(x) = down_e ( silu(gate_e x) * (up_e x) )                  gate, up [I, D], down [D, I]
//   y = sum_k weight[k] * expert_{id_k}(x)  +  sigmoid(shared_gate x) * expert_shared(x)
// x, y [D] float32; ids and weights from the router; shared_gate is one row with a float32 x. The sum over experts is
// taken in the router's order (falling logit), the shared expert last: one order, whatever else is in the batch.
// Tolerance: that of affine_linear.h.
#pragma once

#include "ops/tolerance.h"

namespace lily::ops {

inline constexpr Tolerance kExpertsTolerance{4e-5f, 1e-7f};

}  // namespace lily::ops
