// The kernels for AArch64 with dot product.
#include "backend/cpu/simd_neon.h"
//
#include "backend/cpu/kernels_body.h"
//
#include "backend/cpu/gemm4_body.h"

namespace lily::cpu {

const Kernels& neon_kernels() {
  static constexpr Kernels kTable = make_table("neon", 2, &gemm4<2>);
  return kTable;
}

}  // namespace lily::cpu
