// The vocabulary of simd_generic.h on AArch64 with dot product: a word is four registers of four lanes.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lily::cpu {
namespace {

struct F {
  float32x4_t v[4];
};
struct I {
  int32x4_t v[4];
};
struct W {
  uint8x16_t v[4];
};

constexpr int kAttendTile = 1;
constexpr int kGemm8Rows = 1;

template <class Op>
inline F map(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}
template <class Op>
inline I map_i(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}
template <class Op>
inline W map_w(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}

inline F load(const float* p) {
  return map([&](int i) { return vld1q_f32(p + 4 * i); });
}
inline void store(float* p, F a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
inline F set(float x) {
  return map([&](int) { return vdupq_n_f32(x); });
}
inline F add(F a, F b) {
  return map([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
inline F sub(F a, F b) {
  return map([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}
inline F mul(F a, F b) {
  return map([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
inline F div(F a, F b) {
  return map([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}
inline F fma(F a, F b, F c) {
  return map([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
inline F max(F a, F b) {
  return map([&](int i) { return vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
inline F min(F a, F b) {
  return map([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
inline F abs(F a) {
  return map([&](int i) { return vabsq_f32(a.v[i]); });
}
inline F select_lt(F a, F b, F x, F y) {
  return map([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), x.v[i], y.v[i]); });
}
inline F keep_nan(F a, F y) {
  return map([&](int i) { return vbslq_f32(vceqq_f32(a.v[i], a.v[i]), y.v[i], a.v[i]); });
}
inline F iota() {
  static constexpr float kLane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load(kLane);
}
inline float reduce_add(F a) {
  const float32x4_t x = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t y = vadd_f32(vget_low_f32(x), vget_high_f32(x));
  return vget_lane_f32(y, 0) + vget_lane_f32(y, 1);
}
inline float reduce_max(F a) {
  float lanes[16];
  store(lanes, a);
  for (int n = 8; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) lanes[i] = lanes[i] > lanes[i + n] ? lanes[i] : lanes[i + n];
  return lanes[0];
}

inline I round_i(F a) {
  return map_i([&](int i) { return vcvtnq_s32_f32(a.v[i]); });
}
inline F to_float(I a) {
  return map([&](int i) { return vcvtq_f32_s32(a.v[i]); });
}
inline I set_i(std::int32_t x) {
  return map_i([&](int) { return vdupq_n_s32(x); });
}
inline I add_i(I a, I b) {
  return map_i([&](int i) { return vaddq_s32(a.v[i], b.v[i]); });
}
inline I sub_i(I a, I b) {
  return map_i([&](int i) { return vsubq_s32(a.v[i], b.v[i]); });
}
inline I shift_left8(I a) {
  return map_i([&](int i) { return vshlq_n_s32(a.v[i], 8); });
}
inline I shift_right8(I a) {
  return map_i([&](int i) { return vshrq_n_s32(a.v[i], 8); });
}
inline std::int32_t reduce_add_i(I a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
}
inline F exp2_i(I a) {
  return map([&](int i) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(a.v[i], vdupq_n_s32(127)), 23)); });
}
inline void store_bytes(std::int8_t* p, I a) {
  const int16x8_t x = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
  const int16x8_t y = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(x), vmovn_s16(y)));
}

inline F load_bf16(const void* p) {
  return map([&](int i) {
    uint16x4_t bits;
    std::memcpy(&bits, static_cast<const char*>(p) + 8 * i, sizeof bits);
    return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
  });
}
inline void load_pairs(const std::uint16_t* p, F& a, F& b) {
  for (int i = 0; i < 4; ++i) {
    const uint32x4_t bits = vreinterpretq_u32_u16(vld1q_u16(p + 8 * i));
    a.v[i] = vreinterpretq_f32_u32(vshlq_n_u32(bits, 16));
    b.v[i] = vreinterpretq_f32_u32(vandq_u32(bits, vdupq_n_u32(0xffff0000u)));
  }
}

inline W load_bytes(const std::byte* p) {
  return map_w([&](int i) { return vld1q_u8(reinterpret_cast<const std::uint8_t*>(p) + 16 * i); });
}
inline W low_nibbles(W a) {
  return map_w([&](int i) { return vandq_u8(a.v[i], vdupq_n_u8(15)); });
}
inline W high_nibbles(W a) {
  return map_w([&](int i) { return vshrq_n_u8(a.v[i], 4); });
}
template <int kByte>
inline F byte_of_4(W a) {
  return map([&](int i) {
    const uint32x4_t words = vreinterpretq_u32_u8(a.v[i]);
    if constexpr (kByte == 0)
      return vcvtq_f32_u32(vandq_u32(words, vdupq_n_u32(255)));
    else
      return vcvtq_f32_u32(vandq_u32(vshrq_n_u32(words, kByte == 0 ? 1 : 8 * kByte), vdupq_n_u32(255)));
  });
}
// The nibbles are below 16, so that the signed dot product serves.
inline I dot4(I acc, W w, const std::int8_t* x) {
  std::int32_t four;
  std::memcpy(&four, x, sizeof four);
  const int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(four));
  return map_i([&](int i) { return vdotq_s32(acc.v[i], vreinterpretq_s8_u8(w.v[i]), all); });
}

inline void prefetch(const void* p) {
  __builtin_prefetch(p);
}

}  // namespace
}  // namespace lily::cpu
