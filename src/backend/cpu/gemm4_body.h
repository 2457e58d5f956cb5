// Stripe of 4-bit blocks times a panel of quantised rows, over a vocabulary that has dot4(). A block's nibbles are
// unpacked once for all rows of the panel. Per group and row the exact integer dot product d enters as
//   acc = fma(scale * sx, d, acc);  acc = fma(bias, sum_x, acc)
// in ascending order of groups: a row's result does not depend on the panel it is in.
// Integer sums take rows * planes registers; the float sums of a large panel wait in the L1 cache meanwhile.
#pragma once

namespace lily::cpu {
namespace {

template <int kRows, int kPlanes>
void gemm4_rows(const std::byte* stripe, int n_groups, const Panel& x, float* y, std::ptrdiff_t stride) {
  // One row alone would wait for the latency of its own chain: it gets two chains a plane.
  constexpr int kChains = kRows * kPlanes <= 4 ? 2 : 1;
  constexpr int kAheadBytes = 4096;  // covers the memory latency of one core's share of the bandwidth
  alignas(64) float sums[kRows * kLanes] = {};
  float* acc = sums;
  if constexpr (kRows * kPlanes > 8) asm("" : "+r"(acc));  // keeps them out of the registers that the integers need
  const std::int8_t* codes = x.codes;
  for (int g = 0; g < n_groups; ++g) {
    const std::byte* block = stripe + static_cast<std::size_t>(g) * kBlock4Bytes;
    if constexpr (kRows <= 4)
      for (int line = 0; line < kBlock4Bytes; line += 64) prefetch(block + kAheadBytes + line);
    I dots[kRows][kPlanes][kChains];
    for (int r = 0; r < kRows; ++r)
      for (int p = 0; p < kPlanes; ++p)
        for (int c = 0; c < kChains; ++c) dots[r][p][c] = set_i(0);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const W both = load_bytes(block + 64 * j);
      const W low = low_nibbles(both), high = high_nibbles(both);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int p = 0; p < kPlanes; ++p) {
          const std::int8_t* four = codes + (r * kPlanes + p) * kGroupSize + 8 * j;
          dots[r][p][0] = dot4(dots[r][p][0], low, four);
          dots[r][p][kChains - 1] = dot4(dots[r][p][kChains - 1], high, four + 4);
        }
    }
    const F scale = load_bf16(block + kBlock4Codes), bias = load_bf16(block + kBlock4Codes + 2 * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      I whole[kPlanes];
      for (int p = 0; p < kPlanes; ++p) whole[p] = kChains == 2 ? add_i(dots[r][p][0], dots[r][p][1]) : dots[r][p][0];
      const I dot = kPlanes == 2 ? add_i(shift_left8(whole[0]), whole[kPlanes - 1]) : whole[0];
      const int entry = g * kRows + r;
      F a = load(acc + r * kLanes);
      a = fma(mul(scale, set(x.scales[entry])), to_float(dot), a);
      a = fma(bias, set(x.sums[entry]), a);
      store(acc + r * kLanes, a);
    }
    codes += kRows * kPlanes * kGroupSize;
  }
  for (int r = 0; r < kRows; ++r) store(y + r * stride, load(acc + r * kLanes));
}

template <int kPlanes, int kMax>
void gemm4_dispatch(const std::byte* stripe, int n_groups, const Panel& x, float* y, std::ptrdiff_t stride) {
  if (x.rows == kMax) return gemm4_rows<kMax, kPlanes>(stripe, n_groups, x, y, stride);
  if constexpr (kMax > 1) gemm4_dispatch<kPlanes, kMax - 1>(stripe, n_groups, x, y, stride);
}

template <int kPanelRows>
void gemm4(const std::byte* stripe, int n_groups, const Panel& x, int planes, float* y, std::ptrdiff_t stride) {
  if (planes == 2) return gemm4_dispatch<2, kPanelRows>(stripe, n_groups, x, y, stride);
  gemm4_dispatch<1, kPanelRows>(stripe, n_groups, x, y, stride);
}

}  // namespace
}  // namespace lily::cpu
