// The kernels for AVX-512 with VNNI.
#include "backend/cpu/simd_avx512.h"
//
#include "backend/cpu/kernels_body.h"
//
#include "backend/cpu/gemm4_body.h"

namespace lily::cpu {

const Kernels& avx512_kernels() {
  // 12 rows x 2 planes of sums, two vectors of weights, the nibble mask and the broadcast codes: 28 of 32 registers.
  static constexpr Kernels kTable = make_table("avx512", 12, &gemm4<12>);
  return kTable;
}

}  // namespace lily::cpu
