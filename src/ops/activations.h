// Scalar functions that several operations share, and the only place that defines them.
//   sigmoid(x)  = 1 / (1 + e^-x)
//   silu(x)     = x * sigmoid(x)              SwiGLU, the short convolution, the output gate of Gated DeltaNet
//   softplus(x) = log(1 + e^x)                inside the decay of Gated DeltaNet
// All are finite for every finite float. Vectorised versions in the backends are held to kFloat32 of these.
#pragma once

#include <cmath>

namespace lily::ops {

inline float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

inline float silu(float x) {
  return x * sigmoid(x);
}

inline double softplus(double x) {
  return x > 40.0 ? x : std::log1p(std::exp(x));
}

// log of a value head's decay, g = -exp(a_log) * softplus(a + dt_bias) <= 0; the state is multiplied by exp(g), which
// may underflow to 0. Evaluated in double: it is one value a head, and float32 would make 0 * infinity of the extremes.
inline float log_decay(float a, float a_log, float dt_bias) {
  return static_cast<float>(-std::exp(double{a_log}) * softplus(double{a} + double{dt_bias}));
}

}  // namespace lily::ops
