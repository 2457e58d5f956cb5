// The kernels for AVX2 with FMA. The 4-bit product has its own form here: without VNNI a dot product of bytes goes
// through pairs summed in 16 bits, and the fewer of those sums are widened, the better.
#include "backend/cpu/simd_avx2.h"
//
#include "backend/cpu/kernels_body.h"

namespace lily::cpu {
namespace {

inline __m256i broadcast4(const std::int8_t* x) {
  std::int32_t four;
  std::memcpy(&four, x, sizeof four);
  return _mm256_set1_epi32(four);
}

// Sums of 8 output rows for kRows rows x kPlanes planes over one block half (`block` + 32 bytes a row of 64). A pair
// is at most 2 * 15 * 128 = 3840 in magnitude, so that eight of them fit 16 bits before they are widened.
template <int kRows, int kPlanes>
inline void dots_of_half(const std::byte* block, const std::int8_t* codes, __m256i (&dots)[kRows][kPlanes]) {
  const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  for (int r = 0; r < kRows; ++r)
    for (int p = 0; p < kPlanes; ++p) dots[r][p] = _mm256_setzero_si256();
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    __m256i pairs[kRows][kPlanes];
#pragma GCC unroll 4
    for (int j = 4 * half; j < 4 * half + 4; ++j) {
      const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 64 * j));
      const __m256i low = _mm256_and_si256(both, mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int p = 0; p < kPlanes; ++p) {
          const std::int8_t* x = codes + (r * kPlanes + p) * kGroupSize + 8 * j;
          const __m256i sum =
              _mm256_add_epi16(_mm256_maddubs_epi16(low, broadcast4(x)), _mm256_maddubs_epi16(high, broadcast4(x + 4)));
          pairs[r][p] = j == 4 * half ? sum : _mm256_add_epi16(pairs[r][p], sum);
        }
    }
    for (int r = 0; r < kRows; ++r)
      for (int p = 0; p < kPlanes; ++p) dots[r][p] = _mm256_add_epi32(dots[r][p], _mm256_madd_epi16(pairs[r][p], ones));
  }
}

template <int kRows, int kPlanes>
void gemm4_rows(const std::byte* stripe, int n_groups, const Panel& x, float* y, std::ptrdiff_t stride) {
  constexpr int kAheadBytes = 4096;
  F acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = set(0.0f);
  const std::int8_t* codes = x.codes;
  for (int g = 0; g < n_groups; ++g) {
    const std::byte* block = stripe + static_cast<std::size_t>(g) * kBlock4Bytes;
    for (int line = 0; line < kBlock4Bytes; line += 64) prefetch(block + kAheadBytes + line);
    __m256i lower[kRows][kPlanes], upper[kRows][kPlanes];
    dots_of_half<kRows, kPlanes>(block, codes, lower);
    dots_of_half<kRows, kPlanes>(block + 32, codes, upper);
    const F scale = load_bf16(block + kBlock4Codes), bias = load_bf16(block + kBlock4Codes + 2 * kLanes);
    for (int r = 0; r < kRows; ++r) {
      I dot{lower[r][0], upper[r][0]};
      if constexpr (kPlanes == 2) dot = add_i(shift_left8(dot), I{lower[r][1], upper[r][1]});
      const int entry = g * kRows + r;
      acc[r] = fma(mul(scale, set(x.scales[entry])), to_float(dot), acc[r]);
      acc[r] = fma(bias, set(x.sums[entry]), acc[r]);
    }
    codes += kRows * kPlanes * kGroupSize;
  }
  for (int r = 0; r < kRows; ++r) store(y + r * stride, acc[r]);
}

template <int kPlanes>
void gemm4_planes(const std::byte* stripe, int n_groups, const Panel& x, float* y, std::ptrdiff_t stride) {
  switch (x.rows) {
    case 1:
      return gemm4_rows<1, kPlanes>(stripe, n_groups, x, y, stride);
    case 2:
      return gemm4_rows<2, kPlanes>(stripe, n_groups, x, y, stride);
    case 3:
      return gemm4_rows<3, kPlanes>(stripe, n_groups, x, y, stride);
    default:
      return gemm4_rows<4, kPlanes>(stripe, n_groups, x, y, stride);
  }
}

void gemm4(const std::byte* stripe, int n_groups, const Panel& x, int planes, float* y, std::ptrdiff_t stride) {
  if (planes == 2) return gemm4_planes<2>(stripe, n_groups, x, y, stride);
  gemm4_planes<1>(stripe, n_groups, x, y, stride);
}

}  // namespace

const Kernels& avx2_kernels() {
  static constexpr Kernels kTable = make_table("avx2", 4, &gemm4);
  return kTable;
}

}  // namespace lily::cpu
