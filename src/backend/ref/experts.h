// ops/experts.h
#pragma once

#include <cstdint>
#include <span>

#include "backend/ref/affine_linear.h"

namespace lily::ref {

// The matrices of one layer's routed experts, or of its shared expert (n_experts = 1).
struct ExpertMatrices {
  AffineMatrix gate, up;  // [I, D]
  AffineMatrix down;      // [D, I]
};

// y [D] = down_e ( silu(gate_e x) * (up_e x) ), x [D].
void expert(const ExpertMatrices& experts, std::int64_t id, std::span<const float> x, std::span<float> y);

}  // namespace lily::ref
