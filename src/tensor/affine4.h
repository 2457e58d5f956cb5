// The affine quantiser of MLX: 64 consecutive inputs of a row share a BF16 scale and a BF16 bias,
//   value = scale * code + bias,
// codes of 4 or 8 bits, packed into little-endian 32-bit words with the first code in the lowest bits. Scales are
// negative for about half of the groups: the bias is the end of the range that is larger in magnitude, so that this end
// is exact.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace lily {

// One group as it is stored.
struct AffineGroup {
  std::uint16_t scale = 0;  // BF16
  std::uint16_t bias = 0;   // BF16
};

// Quantises one group of kGroupSize finite values exactly as MLX does on the CPU (all steps in float32, ties to even,
// codes chosen before scale and bias are rounded). `codes` gets kGroupSize codes.
AffineGroup affine_quantize_group(std::span<const float> values, int bits, std::span<std::uint8_t> codes);

// codes [n] -> n * bits / 8 bytes, and back. n is a multiple of 8.
void affine_pack(std::span<const std::uint8_t> codes, int bits, std::span<std::byte> packed);
void affine_unpack(std::span<const std::byte> packed, int bits, std::span<std::uint8_t> codes);

// Quantises a row: values [in], packed [in * bits / 8] bytes, scales and biases [in / 64] BF16.
void affine_quantize_row(std::span<const float> values, int bits, std::span<std::byte> packed,
                         std::span<std::uint16_t> scales, std::span<std::uint16_t> biases);

// Row `row` of expert `expert` as float32: out [in].
void affine_dequantize_row(const AffineView& view, std::int64_t expert, std::int64_t row, std::span<float> out);

}  // namespace lily
