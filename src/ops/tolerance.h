// How far an implementation of an operation may be from the reference. Each op header names the class of its result;
// tests read them from here, docs/numerics.md tells where the figures come from.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace lily::ops {

// |got[i] - want[i]| <= relative * max_j |want[j]| + absolute, over one vector of results.
struct Tolerance {
  float relative;
  float absolute;
};

inline constexpr Tolerance kExact{0.0f, 0.0f};         // selections, copies, masks
inline constexpr Tolerance kFloat32{2e-5f, 1e-7f};     // the same float32 maths in another order of summation
inline constexpr Tolerance kBfloat16{1.6e-2f, 1e-6f};  // inputs or result rounded to bfloat16 (2^-8 each) on the way
inline constexpr Tolerance kInt8{3e-2f, 1e-6f};        // activations quantised to int8 by groups of 64

// Largest |got - want| as a share of what the tolerance allows; at most 1 passes. A NaN or infinity that only one
// side has fails; one that both have passes.
inline double tolerance_used(std::span<const float> got, std::span<const float> want, Tolerance tolerance) {
  double scale = 0;
  for (float value : want)
    if (std::isfinite(value)) scale = std::max(scale, std::fabs(double{value}));
  const double allowed = tolerance.relative * scale + tolerance.absolute;
  double used = got.size() == want.size() ? 0 : HUGE_VAL;
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
    const double error = std::fabs(double{got[i]} - double{want[i]});
    used = std::max(used, std::isfinite(error) && allowed > 0 ? error / allowed : HUGE_VAL);
  }
  return used;
}

}  // namespace lily::ops
