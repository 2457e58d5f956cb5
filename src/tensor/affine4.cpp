// All arithmetic in float32 in MLX's order; equality to the bit is held by tests/oracle/test_affine.py.
#include "tensor/affine4.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace lily {
namespace {

constexpr float kSmallestScale = 1e-7f;

struct Range {
  float scale;
  float bias;
};

// Scale and bias of one group before they are rounded for storage.
Range choose_range(std::span<const float> values, float n_bins) {
  const auto [lowest, highest] = std::minmax_element(values.begin(), values.end());
  const float low = *lowest, high = *highest;
  const bool from_low = std::fabs(low) > std::fabs(high);
  const float step = std::max((high - low) / n_bins, kSmallestScale);
  const float scale = from_low ? step : -step;
  const float edge = from_low ? low : high;
  const float zero_code = std::nearbyint(edge / scale);
  if (zero_code == 0) return {scale, 0};
  return {edge / zero_code, edge};
}

}  // namespace

AffineGroup affine_quantize_group(std::span<const float> values, int bits, std::span<std::uint8_t> codes) {
  LILY_DCHECK(values.size() == kGroupSize && codes.size() == kGroupSize && (bits == 4 || bits == 8));
  const float n_bins = static_cast<float>((1 << bits) - 1);
  const Range range = choose_range(values, n_bins);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float code = std::nearbyint((values[i] - range.bias) / range.scale);
    codes[i] = static_cast<std::uint8_t>(std::clamp(code, 0.0f, n_bins));
  }
  return {float_to_bf16(range.scale), float_to_bf16(range.bias)};
}

void affine_pack(std::span<const std::uint8_t> codes, int bits, std::span<std::byte> packed) {
  LILY_DCHECK(packed.size() == codes.size() * static_cast<std::size_t>(bits) / 8);
  if (bits == 8) {
    std::memcpy(packed.data(), codes.data(), codes.size());
    return;
  }
  for (std::size_t i = 0; i < packed.size(); ++i)
    packed[i] = static_cast<std::byte>(codes[2 * i] | codes[2 * i + 1] << 4);
}

void affine_unpack(std::span<const std::byte> packed, int bits, std::span<std::uint8_t> codes) {
  LILY_DCHECK(packed.size() == codes.size() * static_cast<std::size_t>(bits) / 8);
  if (bits == 8) {
    std::memcpy(codes.data(), packed.data(), codes.size());
    return;
  }
  for (std::size_t i = 0; i < packed.size(); ++i) {
    codes[2 * i] = static_cast<std::uint8_t>(packed[i]) & 15;
    codes[2 * i + 1] = static_cast<std::uint8_t>(packed[i]) >> 4;
  }
}

void affine_quantize_row(std::span<const float> values, int bits, std::span<std::byte> packed,
                         std::span<std::uint16_t> scales, std::span<std::uint16_t> biases) {
  LILY_DCHECK(values.size() % kGroupSize == 0 && scales.size() == values.size() / kGroupSize);
  const std::size_t group_bytes = static_cast<std::size_t>(kGroupSize * bits / 8);
  std::array<std::uint8_t, kGroupSize> codes;
  for (std::size_t g = 0; g < scales.size(); ++g) {
    const AffineGroup group = affine_quantize_group(values.subspan(g * kGroupSize, kGroupSize), bits, codes);
    scales[g] = group.scale;
    biases[g] = group.bias;
    affine_pack(codes, bits, packed.subspan(g * group_bytes, group_bytes));
  }
}

void affine_dequantize_row(const AffineView& view, std::int64_t expert, std::int64_t row, std::span<float> out) {
  LILY_DCHECK(expert >= 0 && expert < view.n_experts && row >= 0 && row < view.out);
  LILY_DCHECK(out.size() == static_cast<std::size_t>(view.in));
  const std::int64_t index = expert * view.out + row;
  const std::int64_t n_groups = view.in / kGroupSize;
  const std::size_t group_bytes = static_cast<std::size_t>(kGroupSize * view.bits / 8);
  const std::byte* packed = view.weight.data + index * view.in * view.bits / 8;
  std::array<std::uint8_t, kGroupSize> codes;
  for (std::int64_t g = 0; g < n_groups; ++g, packed += group_bytes) {
    const float scale = view.scales.load_float(index * n_groups + g);
    const float bias = view.biases.load_float(index * n_groups + g);
    affine_unpack({packed, group_bytes}, view.bits, codes);
    float* const group = out.data() + g * kGroupSize;
    for (int i = 0; i < kGroupSize; ++i)
      group[i] = scale * static_cast<float>(codes[static_cast<std::size_t>(i)]) + bias;
  }
}

}  // namespace lily
