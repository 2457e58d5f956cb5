// Rotary position embedding, half-split pairing.
#include "backend/ref/rope.h"

#include "base/check.h"

namespace lily::ref {

void rope(std::span<float> head, std::span<const float> cos, std::span<const float> sin) {
  const std::size_t half = cos.size();
  LILY_CHECK(sin.size() == half && head.size() >= 2 * half);
  for (std::size_t j = 0; j < half; ++j) {
    const float first = head[j], second = head[j + half];
    head[j] = first * cos[j] - second * sin[j];
    head[j + half] = second * cos[j] + first * sin[j];
  }
}

}  // namespace lily::ref
