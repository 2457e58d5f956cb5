// The vocabulary of simd_generic.h on AVX-512 with VNNI: a word is one register.
#pragma once

// GCC 12's own headers start some intrinsics from an undefined register on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lily::cpu {
namespace {

using F = __m512;
struct I {
  __m512i v;
};
struct W {
  __m512i v;
};

constexpr int kAttendTile = 4;  // 4 x 4 sums, 4 keys, 1 query: 21 of 32 registers, enough chains for the FMA latency
constexpr int kGemm8Rows = 4;

inline F load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline void store(float* p, F a) {
  _mm512_storeu_ps(p, a);
}
inline F set(float x) {
  return _mm512_set1_ps(x);
}
inline F add(F a, F b) {
  return _mm512_add_ps(a, b);
}
inline F sub(F a, F b) {
  return _mm512_sub_ps(a, b);
}
inline F mul(F a, F b) {
  return _mm512_mul_ps(a, b);
}
inline F div(F a, F b) {
  return _mm512_div_ps(a, b);
}
inline F fma(F a, F b, F c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline F max(F a, F b) {
  return _mm512_max_ps(a, b);
}
inline F min(F a, F b) {
  return _mm512_min_ps(a, b);
}
inline F abs(F a) {
  return _mm512_abs_ps(a);
}
inline F select_lt(F a, F b, F x, F y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
inline F keep_nan(F a, F y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), y, a);
}
inline F iota() {
  return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

inline float reduce_add(F a) {
  const __m256 x = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 z = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
}
inline float reduce_max(F a) {
  const __m256 x = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 z = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_max_ss(z, _mm_movehdup_ps(z)));
}

inline I round_i(F a) {
  return {_mm512_cvtps_epi32(a)};
}
inline F to_float(I a) {
  return _mm512_cvtepi32_ps(a.v);
}
inline I set_i(std::int32_t x) {
  return {_mm512_set1_epi32(x)};
}
inline I add_i(I a, I b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
inline I sub_i(I a, I b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
inline I shift_left8(I a) {
  return {_mm512_slli_epi32(a.v, 8)};
}
inline I shift_right8(I a) {
  return {_mm512_srai_epi32(a.v, 8)};
}
inline std::int32_t reduce_add_i(I a) {
  return _mm512_reduce_add_epi32(a.v);
}
inline F exp2_i(I a) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(a.v, _mm512_set1_epi32(127)), 23));
}
inline void store_bytes(std::int8_t* p, I a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}

inline F load_bf16(const void* p) {
  const __m256i bits = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline void load_pairs(const std::uint16_t* p, F& a, F& b) {
  const __m512i bits = _mm512_loadu_si512(p);
  a = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
  b = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

inline W load_bytes(const std::byte* p) {
  return {_mm512_loadu_si512(p)};
}
inline W low_nibbles(W a) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))};
}
inline W high_nibbles(W a) {
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))};
}
template <int kByte>
inline F byte_of_4(W a) {
  return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(a.v, 8 * kByte), _mm512_set1_epi32(255)));
}
inline I dot4(I acc, W w, const std::int8_t* x) {
  std::int32_t four;
  std::memcpy(&four, x, sizeof four);
  return {_mm512_dpbusd_epi32(acc.v, w.v, _mm512_set1_epi32(four))};
}

inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

}  // namespace
}  // namespace lily::cpu
