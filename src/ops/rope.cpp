// The rotation table of RoPE, computed in double.
#include "ops/rope.h"

#include <cmath>

#include "base/check.h"

namespace lily::ops {

void rope_cos_sin(std::int64_t position, double theta, std::span<float> cos, std::span<float> sin) {
  LILY_CHECK(cos.size() == sin.size());
  for (std::size_t j = 0; j < cos.size(); ++j) {
    const double frequency = std::pow(theta, -static_cast<double>(j) / static_cast<double>(cos.size()));
    const double angle = static_cast<double>(position) * frequency;
    cos[j] = static_cast<float>(std::cos(angle));
    sin[j] = static_cast<float>(std::sin(angle));
  }
}

}  // namespace lily::ops
