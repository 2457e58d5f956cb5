// The vocabulary of simd_generic.h on AVX2 with FMA: a word is two registers, lanes 0-7 and 8-15.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lily::cpu {
namespace {

struct F {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};
struct W {
  __m256i a, b;
};

constexpr int kAttendTile = 1;
constexpr int kGemm8Rows = 1;

inline F load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void store(float* p, F x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline F set(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
inline F add(F x, F y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
inline F sub(F x, F y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
inline F mul(F x, F y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
inline F div(F x, F y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
inline F fma(F x, F y, F z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline F max(F x, F y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
inline F min(F x, F y) {
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
inline F abs(F x) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(x.a, mask), _mm256_and_ps(x.b, mask)};
}
inline F select_lt(F p, F q, F x, F y) {
  return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(p.a, q.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(p.b, q.b, _CMP_LT_OQ))};
}
inline F keep_nan(F x, F y) {
  return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q)),
          _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q))};
}
inline F iota() {
  return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15)};
}

inline float reduce_add(F v) {
  const __m256 x = _mm256_add_ps(v.a, v.b);
  const __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 z = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
}
inline float reduce_max(F v) {
  const __m256 x = _mm256_max_ps(v.a, v.b);
  const __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 z = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_max_ss(z, _mm_movehdup_ps(z)));
}

inline I round_i(F x) {
  return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
}
inline F to_float(I x) {
  return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
inline I set_i(std::int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
inline I add_i(I x, I y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
inline I sub_i(I x, I y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
inline I shift_left8(I x) {
  return {_mm256_slli_epi32(x.a, 8), _mm256_slli_epi32(x.b, 8)};
}
inline I shift_right8(I x) {
  return {_mm256_srai_epi32(x.a, 8), _mm256_srai_epi32(x.b, 8)};
}
inline std::int32_t reduce_add_i(I v) {
  const __m256i x = _mm256_add_epi32(v.a, v.b);
  __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0x4e));
  y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0xb1));
  return _mm_cvtsi128_si32(y);
}
inline F exp2_i(I x) {
  const __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(x.a, bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(x.b, bias), 23))};
}
inline void store_bytes(std::int8_t* p, I x) {
  // The low byte of each dword to the front of its 128-bit half, then the four dwords that hold them together.
  const __m256i pick = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12, -1,
                                        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i a = _mm256_shuffle_epi8(x.a, pick), b = _mm256_shuffle_epi8(x.b, pick);
  const __m128i a8 = _mm_unpacklo_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  const __m128i b8 = _mm_unpacklo_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_unpacklo_epi64(a8, b8));
}

inline F load_bf16(const void* p) {
  const __m128i* q = static_cast<const __m128i*>(p);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(q)), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1)), 16))};
}
inline void load_pairs(const std::uint16_t* p, F& a, F& b) {
  const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16));
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  a = {_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(y, 16))};
  b = {_mm256_castsi256_ps(_mm256_and_si256(x, high)), _mm256_castsi256_ps(_mm256_and_si256(y, high))};
}

inline W load_bytes(const std::byte* p) {
  const __m256i* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline W low_nibbles(W x) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
}
inline W high_nibbles(W x) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(_mm256_srli_epi16(x.a, 4), mask), _mm256_and_si256(_mm256_srli_epi16(x.b, 4), mask)};
}
template <int kByte>
inline F byte_of_4(W x) {
  const __m256i mask = _mm256_set1_epi32(255);
  return {_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(x.a, 8 * kByte), mask)),
          _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(x.b, 8 * kByte), mask))};
}

inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

}  // namespace
}  // namespace lily::cpu
