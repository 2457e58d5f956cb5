// The vocabulary of kernels_body.h in plain C++: sixteen floats, sixteen int32, sixty-four bytes. It states the meaning
// of every word; the other simd_*.h files must agree with it to the bit (NaN payloads aside).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lily::cpu {
namespace {

struct F {
  float v[16];
};
struct I {
  std::int32_t v[16];
};
struct W {
  std::uint8_t v[64];
};

constexpr int kAttendTile = 1;  // query rows that share a converted key vector
constexpr int kGemm8Rows = 1;

template <class Op>
inline F map(Op op) {
  F r;
  for (int i = 0; i < 16; ++i) r.v[i] = op(i);
  return r;
}
template <class Op>
inline I map_i(Op op) {
  I r;
  for (int i = 0; i < 16; ++i) r.v[i] = op(i);
  return r;
}

inline F load(const float* p) {
  F r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
inline void store(float* p, F a) {
  std::memcpy(p, a.v, sizeof a.v);
}
inline F set(float x) {
  return map([&](int) { return x; });
}
inline F add(F a, F b) {
  return map([&](int i) { return a.v[i] + b.v[i]; });
}
inline F sub(F a, F b) {
  return map([&](int i) { return a.v[i] - b.v[i]; });
}
inline F mul(F a, F b) {
  return map([&](int i) { return a.v[i] * b.v[i]; });
}
inline F div(F a, F b) {
  return map([&](int i) { return a.v[i] / b.v[i]; });
}
// a * b + c, one rounding
inline F fma(F a, F b, F c) {
  return map([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
// a > b ? a : b, so b if either is NaN
inline F max(F a, F b) {
  return map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline F min(F a, F b) {
  return map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline F abs(F a) {
  return map([&](int i) { return __builtin_fabsf(a.v[i]); });
}
// a < b ? x : y
inline F select_lt(F a, F b, F x, F y) {
  return map([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
}
// a is NaN ? a : y
inline F keep_nan(F a, F y) {
  return map([&](int i) { return a.v[i] != a.v[i] ? a.v[i] : y.v[i]; });
}
inline F iota() {
  return map([&](int i) { return static_cast<float>(i); });
}
// Sum over a fixed tree: lanes 8 apart, then 4, 2, 1.
inline float reduce_add(F a) {
  for (int n = 8; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) a.v[i] = a.v[i] + a.v[i + n];
  return a.v[0];
}
inline float reduce_max(F a) {
  for (int n = 8; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) a.v[i] = a.v[i] > a.v[i + n] ? a.v[i] : a.v[i + n];
  return a.v[0];
}

// Nearest, ties to even, for |a| < 2^22.
inline I round_i(F a) {
  return map_i([&](int i) {
    const float magic = 12582912.0f;
    volatile float shifted = a.v[i] + magic;  // volatile: the pair of additions is the rounding
    return static_cast<std::int32_t>(shifted - magic);
  });
}
inline F to_float(I a) {
  return map([&](int i) { return static_cast<float>(a.v[i]); });
}
inline I set_i(std::int32_t x) {
  return map_i([&](int) { return x; });
}
inline I add_i(I a, I b) {
  return map_i([&](int i) { return a.v[i] + b.v[i]; });
}
inline I sub_i(I a, I b) {
  return map_i([&](int i) { return a.v[i] - b.v[i]; });
}
// a * 2^8, arithmetic a / 2^8 rounded down
inline I shift_left8(I a) {
  return map_i([&](int i) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) << 8); });
}
inline I shift_right8(I a) {
  return map_i([&](int i) { return a.v[i] >> 8; });
}
inline std::int32_t reduce_add_i(I a) {
  std::int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += a.v[i];
  return sum;
}
// 2^a for -126 <= a <= 127
inline F exp2_i(I a) {
  return map([&](int i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(a.v[i] + 127) << 23;
    float r;
    std::memcpy(&r, &bits, sizeof r);
    return r;
  });
}
// The low bytes.
inline void store_bytes(std::int8_t* p, I a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(a.v[i]);
}

inline float widen_bf16(std::uint32_t bits) {
  bits <<= 16;
  float r;
  std::memcpy(&r, &bits, sizeof r);
  return r;
}
// 16 consecutive bfloat16
inline F load_bf16(const void* p) {
  return map([&](int i) {
    std::uint16_t bits;
    std::memcpy(&bits, static_cast<const char*>(p) + 2 * i, 2);
    return widen_bf16(bits);
  });
}
// 16 pairs: the first of each into a, the second into b
inline void load_pairs(const std::uint16_t* p, F& a, F& b) {
  a = map([&](int i) { return widen_bf16(p[2 * i]); });
  b = map([&](int i) { return widen_bf16(p[2 * i + 1]); });
}

inline W load_bytes(const std::byte* p) {
  W r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
// Byte j of every 4, as floats.
template <int kByte>
inline F byte_of_4(W a) {
  return map([&](int i) { return static_cast<float>(a.v[4 * i + kByte]); });
}
inline void prefetch(const void*) {}

}  // namespace
}  // namespace lily::cpu
