// The kernels for any machine.
#include "backend/cpu/simd_generic.h"
//
#include "backend/cpu/kernels_body.h"

namespace lily::cpu {
namespace {

// The 4-bit product as its definition: an exact integer for each group, then two fused multiply-adds.
void gemm4(const std::byte* stripe, int n_groups, const Panel& x, int planes, float* y, std::ptrdiff_t stride) {
  for (int r = 0; r < x.rows; ++r) {
    F acc = set(0.0f);
    for (int g = 0; g < n_groups; ++g) {
      const std::byte* block = stripe + static_cast<std::size_t>(g) * kBlock4Bytes;
      const int entry = g * x.rows + r;
      const std::int8_t* codes = x.codes + entry * planes * kGroupSize;
      I dot = set_i(0);
      for (int i = 0; i < kGroupSize; ++i) {
        const std::byte* row = block + 64 * (i / 8) + i % 4;
        const int value = planes == 2 ? 256 * codes[i] + codes[kGroupSize + i] : codes[i];
        const unsigned shift = i % 8 < 4 ? 0 : 4;
        for (int lane = 0; lane < kLanes; ++lane)
          dot.v[lane] += static_cast<int>((static_cast<unsigned>(row[4 * lane]) >> shift) & 15u) * value;
      }
      acc = fma(mul(load_bf16(block + kBlock4Codes), set(x.scales[entry])), to_float(dot), acc);
      acc = fma(load_bf16(block + kBlock4Codes + 2 * kLanes), set(x.sums[entry]), acc);
    }
    store(y + r * stride, acc);
  }
}

}  // namespace

const Kernels& generic_kernels() {
  static constexpr Kernels kTable = make_table("generic", 4, &gemm4);
  return kTable;
}

}  // namespace lily::cpu
