// Inner loops of the reference (vector.h).
#include "backend/ref/vector.h"

#include "base/check.h"
#include "tensor/view.h"

namespace lily::ref {
namespace {

// Sixteen floats; may lie anywhere and alias float arrays.
using Lanes = float __attribute__((vector_size(64), aligned(4), may_alias));

constexpr int kGroup = 64;

}  // namespace

LILY_REF_CLONES float dot(const float* a, const float* b, std::int64_t n) {
  LILY_DCHECK(n % 32 == 0);
  Lanes even{}, odd{};
  for (std::int64_t i = 0; i < n; i += 32) {
    even += *reinterpret_cast<const Lanes*>(a + i) * *reinterpret_cast<const Lanes*>(b + i);
    odd += *reinterpret_cast<const Lanes*>(a + i + 16) * *reinterpret_cast<const Lanes*>(b + i + 16);
  }
  const Lanes both = even + odd;
  float lanes[16];
  std::memcpy(lanes, &both, sizeof lanes);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

LILY_REF_CLONES void add_scaled(float* y, float s, const float* x, std::int64_t n) {
  LILY_DCHECK(n % 16 == 0);
  for (std::int64_t i = 0; i < n; i += 16)
    *reinterpret_cast<Lanes*>(y + i) += s * *reinterpret_cast<const Lanes*>(x + i);
}

LILY_REF_CLONES void dequantise(const std::byte* codes, const std::byte* scales, const std::byte* biases, int bits,
                                std::int64_t n_groups, float* out) {
  for (std::int64_t g = 0; g < n_groups; ++g, out += kGroup) {
    std::uint16_t scale_bits, bias_bits;
    std::memcpy(&scale_bits, scales + 2 * g, 2);
    std::memcpy(&bias_bits, biases + 2 * g, 2);
    const float scale = bf16_to_float(scale_bits), bias = bf16_to_float(bias_bits);
    if (bits == 8) {
      for (int i = 0; i < kGroup; ++i)
        out[i] = scale * static_cast<float>(std::to_integer<int>(codes[g * kGroup + i])) + bias;
      continue;
    }
    for (int i = 0; i < kGroup / 2; ++i) {
      const int pair = std::to_integer<int>(codes[g * kGroup / 2 + i]);
      out[2 * i] = scale * static_cast<float>(pair & 15) + bias;
      out[2 * i + 1] = scale * static_cast<float>(pair >> 4) + bias;
    }
  }
}

LILY_REF_CLONES void widen(const std::uint16_t* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = bf16_to_float(x[i]);
}

}  // namespace lily::ref
