// Inner loops of the reference (vector.h).
#include "backend/ref/vector.h"

#include <cstring>

#include "base/check.h"
#include "tensor/view.h"

namespace lily::ref {
namespace {

using Lanes = float __attribute__((vector_size(64)));  // sixteen floats
using Bits16 = std::uint16_t __attribute__((vector_size(32)));
using Bits32 = std::uint32_t __attribute__((vector_size(64)));

constexpr int kGroup = 64;

#pragma GCC diagnostic ignored "-Wpsabi"  // the helpers below are inlined: no vector is passed in a call

// Always inlined: the callers below are compiled once per instruction set. Arrays of floats need no alignment.
[[gnu::always_inline]] inline Lanes load(const float* x) {
  Lanes lanes;
  std::memcpy(&lanes, x, sizeof lanes);
  return lanes;
}
[[gnu::always_inline]] inline void store(float* x, const Lanes& lanes) {
  std::memcpy(x, &lanes, sizeof lanes);
}

[[gnu::always_inline]] inline float sum_of_lanes(const Lanes& x) {
  const auto eight = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// kRows dot products that share the loads of w.
template <int kRows>
[[gnu::always_inline]] inline void dots(const float* w, const float* rows, std::int64_t n, float* y,
                                        std::int64_t y_stride) {
  Lanes even[kRows]{}, odd[kRows]{};
  for (std::int64_t i = 0; i < n; i += 32)
    for (int r = 0; r < kRows; ++r) {
      even[r] += load(w + i) * load(rows + r * n + i);
      odd[r] += load(w + i + 16) * load(rows + r * n + i + 16);
    }
  for (int r = 0; r < kRows; ++r) y[r * y_stride] = sum_of_lanes(even[r] + odd[r]);
}

// kLanes * 16 columns of the weighted sum, held in registers.
template <int kLanes>
[[gnu::always_inline]] inline void add_columns(const float* p, const float* rows, std::int64_t n_rows, std::int64_t n,
                                               float* y) {
  Lanes sum[kLanes];
  for (int i = 0; i < kLanes; ++i) sum[i] = load(y + 16 * i);
  for (std::int64_t r = 0; r < n_rows; ++r)
    for (int i = 0; i < kLanes; ++i) sum[i] += p[r] * load(rows + r * n + 16 * i);
  for (int i = 0; i < kLanes; ++i) store(y + 16 * i, sum[i]);
}

}  // namespace

LILY_REF_CLONES void dot_rows(const float* w, const float* rows, std::int64_t n_rows, std::int64_t n, float* y,
                              std::int64_t y_stride) {
  LILY_DCHECK(n % 32 == 0);
  std::int64_t r = 0;
  for (; r + 4 <= n_rows; r += 4) dots<4>(w, rows + r * n, n, y + r * y_stride, y_stride);
  for (; r < n_rows; ++r) dots<1>(w, rows + r * n, n, y + r * y_stride, y_stride);
}

LILY_REF_CLONES void add_weighted_rows(const float* p, const float* rows, std::int64_t n_rows, std::int64_t n,
                                       float* y) {
  LILY_DCHECK(n % 16 == 0);
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64) add_columns<4>(p, rows + i, n_rows, n, y + i);
  for (; i < n; i += 16) add_columns<1>(p, rows + i, n_rows, n, y + i);
}

LILY_REF_CLONES void add_scaled(float* y, float s, const float* x, std::int64_t n) {
  LILY_DCHECK(n % 16 == 0);
  for (std::int64_t i = 0; i < n; i += 16) store(y + i, load(y + i) + s * load(x + i));
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
  LILY_DCHECK(n % 16 == 0);
  for (std::int64_t i = 0; i < n; i += 16) {
    Bits16 bits;
    std::memcpy(&bits, x + i, sizeof bits);
    const Bits32 wide = __builtin_convertvector(bits, Bits32) << 16;
    std::memcpy(out + i, &wide, sizeof wide);
  }
}

}  // namespace lily::ref
