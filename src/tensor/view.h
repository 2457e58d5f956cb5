// Non-owning views of tensors as they lie in a checkpoint file: nothing is aligned (MLX writes its header without
// padding), so elements are read through load_*(), never through a typed pointer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lily {

inline constexpr int kGroupSize = 64;  // inputs that share one scale and bias (MLX affine)

enum class Dtype : std::uint8_t { U32, BF16, F32 };

constexpr int dtype_bytes(Dtype dtype) {
  return dtype == Dtype::BF16 ? 2 : 4;
}

inline float bf16_to_float(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// Round to nearest, ties to even; NaN stays NaN.
inline std::uint16_t float_to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

struct TensorView {
  Dtype dtype = Dtype::BF16;
  int rank = 0;
  std::array<std::int64_t, 4> dims{};
  const std::byte* data = nullptr;  // unaligned
  std::size_t bytes = 0;

  std::int64_t count() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[static_cast<std::size_t>(i)];
    return n;
  }
  std::uint16_t load_u16(std::int64_t i) const {
    std::uint16_t v;
    std::memcpy(&v, data + 2 * i, sizeof v);
    return v;
  }
  std::uint32_t load_u32(std::int64_t i) const {
    std::uint32_t v;
    std::memcpy(&v, data + 4 * i, sizeof v);
    return v;
  }
  // Element i as float, for BF16 and F32.
  float load_float(std::int64_t i) const {
    if (dtype == Dtype::BF16) return bf16_to_float(load_u16(i));
    float v;
    std::memcpy(&v, data + 4 * i, sizeof v);
    return v;
  }
};

// One quantised module: [n_experts, out, in] with n_experts = 1 for ordinary matrices.
//   value[e, o, i] = scale[e, o, i/64] * code[e, o, i] + bias[e, o, i/64]
// weight is U32 [.., in * bits / 32], lowest bits first; scales and biases are BF16 [.., in / 64].
struct AffineView {
  int bits = 4;  // 4 or 8
  std::int64_t n_experts = 1;
  std::int64_t out = 0;
  std::int64_t in = 0;
  TensorView weight;
  TensorView scales;
  TensorView biases;

  std::size_t bytes() const { return weight.bytes + scales.bytes + biases.bytes; }
};

}  // namespace lily
