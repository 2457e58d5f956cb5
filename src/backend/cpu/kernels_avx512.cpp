// The kernels for AVX-512 with VNNI.
#include "backend/cpu/simd_avx512.h"
//
#include "backend/cpu/kernels_body.h"
//
#include "backend/cpu/gemm4_body.h"

namespace lily::cpu {

const Kernels& avx512_kernels() {
  // 8 rows x 2 planes of sums leave registers for the weights, and a panel of the 35B shape is one L1 cache; 12 rows
  // would fit the registers too and are no faster.
  static constexpr Kernels kTable = make_table("avx512", 8, &gemm4<8>);
  return kTable;
}

}  // namespace lily::cpu
