// ops/rms_norm.h, and the plain normalisation of q and k in Gated DeltaNet (ops/gated_delta.h).
#pragma once

#include <span>

namespace lily::ref {

// x, weight, y [n]; y may be x.
void rms_norm(std::span<const float> x, std::span<const float> weight, std::span<float> y);

// x[i] <- x[i] * scale * (sum_j x[j]^2 + kL2NormEps)^(-1/2)
void l2_norm(std::span<float> x, double scale);

}  // namespace lily::ref
