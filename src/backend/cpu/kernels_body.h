// Every kernel but the 4-bit product, written once over the vocabulary of a simd_*.h and compiled once for each
// instruction set. Included after the vocabulary; everything lives in an anonymous namespace, so that no two versions
// of an inline function can meet in the linker. The order of every sum is fixed here.
#pragma once

#include <cmath>  // INFINITY

#include "backend/cpu/kernels.h"

namespace lily::cpu {
namespace {

// Sums of four interleaved chains: (0 + 1) + (2 + 3).
inline F join(const F (&s)[4]) {
  return add(add(s[0], s[1]), add(s[2], s[3]));
}

// e^x to about 1 ulp; 0 below the smallest normal result, e^88.37 above that, NaN stays.
// Cody-Waite reduction by ln 2 and the minimax polynomial of Cephes' expf.
inline F exp(F x) {
  const F low = set(-87.33654f);
  const F y = min(max(x, low), set(88.37f));
  const I n = round_i(mul(y, set(1.44269504f)));
  const F nf = to_float(n);
  F r = fma(nf, set(-0.693359375f), y);
  r = fma(nf, set(2.12194440e-4f), r);
  F p = set(1.9875691500e-4f);
  p = fma(p, r, set(1.3981999507e-3f));
  p = fma(p, r, set(8.3334519073e-3f));
  p = fma(p, r, set(4.1665795894e-2f));
  p = fma(p, r, set(1.6666665459e-1f));
  p = fma(p, r, set(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), set(1.0f));
  return keep_nan(x, select_lt(x, low, set(0.0f), mul(p, exp2_i(n))));
}

inline F sigmoid(F x) {
  return div(set(1.0f), add(set(1.0f), exp(sub(set(0.0f), x))));
}
inline F silu(F x) {
  return div(x, add(set(1.0f), exp(sub(set(0.0f), x))));
}

void quantize(const float* x, int n_groups, int planes, std::int8_t* codes, float* scales, float* sums,
              std::ptrdiff_t entry_stride) {
  const float limit = planes == 2 ? 32639.0f : 127.0f;  // 32639 = 256 * 127 + 127
  for (int g = 0; g < n_groups; ++g, x += kGroupSize) {
    F v[4], largest = set(0.0f), poison = set(0.0f);
    for (int i = 0; i < 4; ++i) {
      v[i] = load(x + kLanes * i);
      largest = max(largest, abs(v[i]));
      poison = fma(v[i], set(0.0f), poison);  // NaN as soon as one value is NaN or infinite
    }
    const float top = reduce_max(largest);
    const bool tiny = !(top > 1e-30f);  // its reciprocal would overflow
    const F inverse = set(tiny ? 0.0f : limit / top);
    I total = set_i(0);
    for (int i = 0; i < 4; ++i) {
      const I q = round_i(max(min(mul(v[i], inverse), set(limit)), set(-limit)));
      total = add_i(total, q);
      if (planes == 2) {
        const I high = shift_right8(add_i(q, set_i(128)));
        store_bytes(codes + kLanes * i, high);
        store_bytes(codes + kGroupSize + kLanes * i, sub_i(q, shift_left8(high)));
      } else {
        store_bytes(codes + kLanes * i, q);
      }
    }
    const float scale = (tiny ? 0.0f : top / limit) + reduce_add(poison);
    *scales = scale;
    *sums = scale * static_cast<float>(reduce_add_i(total));
    codes += entry_stride * planes * kGroupSize;
    scales += entry_stride;
    sums += entry_stride;
  }
}

void group_sums(const float* x, int n_groups, float* sums) {
  for (int g = 0; g < n_groups; ++g, x += kGroupSize) {
    F s[4];
    for (int i = 0; i < 4; ++i) s[i] = load(x + kLanes * i);
    sums[g] = reduce_add(join(s));
  }
}

// Four chains, one for each byte of a dword, joined at the end of every group.
template <int kRows>
void gemm8_rows(const std::byte* stripe, int n_groups, const float* x, std::ptrdiff_t x_stride, const float* sums,
                float* y, std::ptrdiff_t stride) {
  F acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = set(0.0f);
  for (int g = 0; g < n_groups; ++g) {
    const std::byte* block = stripe + static_cast<std::size_t>(g) * kBlock8Bytes;
    F s[kRows][4];
    for (int r = 0; r < kRows; ++r)
      for (int j = 0; j < 4; ++j) s[r][j] = set(0.0f);
    for (int i = 0; i < kGroupSize / 4; ++i) {
      const W codes = load_bytes(block + 64 * i);
      const F w[4] = {byte_of_4<0>(codes), byte_of_4<1>(codes), byte_of_4<2>(codes), byte_of_4<3>(codes)};
      for (int r = 0; r < kRows; ++r)
        for (int j = 0; j < 4; ++j) s[r][j] = fma(w[j], set(x[r * x_stride + g * kGroupSize + 4 * i + j]), s[r][j]);
    }
    const F scale = load_bf16(block + kBlock8Codes), bias = load_bf16(block + kBlock8Codes + 2 * kLanes);
    for (int r = 0; r < kRows; ++r) {
      acc[r] = fma(scale, join(s[r]), acc[r]);
      acc[r] = fma(bias, set(sums[r * n_groups + g]), acc[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) store(y + r * stride, acc[r]);
}

void gemm8(const std::byte* stripe, int n_groups, const float* x, std::ptrdiff_t x_stride, const float* sums, int rows,
           float* y, std::ptrdiff_t stride) {
  int r = 0;
  for (; r + kGemm8Rows <= rows; r += kGemm8Rows)
    gemm8_rows<kGemm8Rows>(stripe, n_groups, x + r * x_stride, x_stride, sums + r * n_groups, y + r * stride, stride);
  for (; r < rows; ++r)
    gemm8_rows<1>(stripe, n_groups, x + r * x_stride, x_stride, sums + r * n_groups, y + r * stride, stride);
}

inline float sum_of_squares(const float* x, int n) {
  F s[4] = {set(0.0f), set(0.0f), set(0.0f), set(0.0f)};
  for (int i = 0; i < n; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) {
      const F v = load(x + i + kLanes * j);
      s[j] = fma(v, v, s[j]);
    }
  return reduce_add(join(s));
}

void rms_norm(const float* x, const float* weight, int n, float* y) {
  const F scale = set(1.0f / __builtin_sqrtf(sum_of_squares(x, n) / static_cast<float>(n) + kRmsEps));
  for (int i = 0; i < n; i += kLanes) store(y + i, mul(mul(load(x + i), scale), load(weight + i)));
}

void l2_norm(const float* x, float eps, float scale, float* y) {
  const F factor = set(scale / __builtin_sqrtf(sum_of_squares(x, kGdnDim) + eps));
  for (int i = 0; i < kGdnDim; i += kLanes) store(y + i, mul(load(x + i), factor));
}

void mul_silu(const float* z, const float* x, int n, float* y) {
  for (int i = 0; i < n; i += kLanes) store(y + i, mul(silu(load(z + i)), load(x + i)));
}

void rope_scale(float* x, const float* cos, const float* sin, int half, int n, float scale) {
  const F factor = set(scale);
  for (int i = 0; i < half; i += kLanes) {
    const F a = load(x + i), b = load(x + half + i), c = load(cos + i), s = load(sin + i);
    const F minus_s = sub(set(0.0f), s);
    store(x + i, mul(fma(b, minus_s, mul(a, c)), factor));
    store(x + half + i, mul(fma(a, s, mul(b, c)), factor));
  }
  for (int i = 2 * half; i < n; i += kLanes) store(x + i, mul(load(x + i), factor));
}

void scatter_add(const float* tile, int n_rows, const int* rows, const float* weight, float* y, std::ptrdiff_t stride) {
  for (int r = 0; r < n_rows; ++r) {
    float* target = y + rows[r] * stride;
    store(target, fma(set(weight[r]), load(tile + r * kLanes), load(target)));
  }
}

void conv_silu(const float* x, std::ptrdiff_t x_stride, float* tail, std::ptrdiff_t tail_stride, const float* weight,
               int n_tokens, float* y) {
  for (int c = 0; c < kGdnDim; c += kLanes) {
    F w[4], past[3];
    for (int m = 0; m < 4; ++m) w[m] = load(weight + m * kGdnDim + c);
    for (int m = 0; m < 3; ++m) past[m] = load(tail + m * tail_stride + c);
    for (int t = 0; t < n_tokens; ++t) {
      const F now = load(x + t * x_stride + c);
      F sum = mul(w[0], past[0]);
      sum = fma(w[1], past[1], sum);
      sum = fma(w[2], past[2], sum);
      sum = fma(w[3], now, sum);
      store(y + t * kGdnDim + c, silu(sum));
      past[0] = past[1];
      past[1] = past[2];
      past[2] = now;
    }
    for (int m = 0; m < 3; ++m) store(tail + m * tail_stride + c, past[m]);
  }
}

// Per token two passes over a slice that stays in the L1 cache: read p = a S^T k, then write S <- a S + k delta^T and
// read o = S^T q on the way. Even and odd key dims are summed apart, which gives four chains.
void gdn_scan(const GdnScan& scan) {
  for (int t = 0; t < scan.n_tokens; ++t) {
    const float* q = scan.q + t * kGdnDim;
    const float* k = scan.k + t * kGdnDim;
    const F decay = set(scan.decay[t]), beta = set(scan.beta[t]);
    F even[2] = {set(0.0f), set(0.0f)}, odd[2] = {set(0.0f), set(0.0f)};
#pragma GCC unroll 4
    for (int i = 0; i < kGdnDim; i += 2) {
      const float* s = scan.memory + i * kSliceColumns;
      for (int c = 0; c < 2; ++c) {
        even[c] = fma(load(s + kLanes * c), set(k[i]), even[c]);
        odd[c] = fma(load(s + kSliceColumns + kLanes * c), set(k[i + 1]), odd[c]);
      }
    }
    F delta[2];
    for (int c = 0; c < 2; ++c) {
      const F held = mul(decay, add(even[c], odd[c]));
      delta[c] = mul(beta, sub(load(scan.v + t * kGdnDim + kLanes * c), held));
      even[c] = odd[c] = set(0.0f);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kGdnDim; i += 2) {
      float* s = scan.memory + i * kSliceColumns;
      for (int c = 0; c < 2; ++c) {
        const F first = fma(set(k[i]), delta[c], mul(decay, load(s + kLanes * c)));
        store(s + kLanes * c, first);
        even[c] = fma(first, set(q[i]), even[c]);
        const F second = fma(set(k[i + 1]), delta[c], mul(decay, load(s + kSliceColumns + kLanes * c)));
        store(s + kSliceColumns + kLanes * c, second);
        odd[c] = fma(second, set(q[i + 1]), odd[c]);
      }
    }
    for (int c = 0; c < 2; ++c) store(scan.out + t * kGdnDim + kLanes * c, add(even[c], odd[c]));
  }
}

// scores[r][position] = q . key, one chain a score.
template <int kRows>
inline void attend_scores(const AttendBlock& b, int row, float* scores) {
  F s[kRows][4];
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < 4; ++i) s[r][i] = set(0.0f);
  for (int d = 0; d < kAttnDim; ++d) {
    F key[4];
    load_pairs(b.keys + d * kPageTokens, key[0], key[1]);
    load_pairs(b.keys + d * kPageTokens + 32, key[2], key[3]);
    for (int r = 0; r < kRows; ++r) {
      const F q = set(b.q[(row + r) * kAttnDim + d]);
      for (int i = 0; i < 4; ++i) s[r][i] = fma(q, key[i], s[r][i]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < 4; ++i) store(scores + (row + r) * kPageTokens + kLanes * i, s[r][i]);
}

// out[r] = out[r] * correction[r] + sum over positions of p * value, the block's sum first.
template <int kRows>
inline void attend_values(const AttendBlock& b, int row, int n_positions, const float* p, const float* correction) {
  for (int d = 0; d < kAttnDim; d += 4 * kLanes) {
    F s[kRows][4];
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < 4; ++i) s[r][i] = set(0.0f);
    for (int n = 0; n < n_positions; ++n) {
      F value[4];
      load_pairs(b.values + n * kAttnDim + d, value[0], value[1]);
      load_pairs(b.values + n * kAttnDim + d + 32, value[2], value[3]);
      for (int r = 0; r < kRows; ++r) {
        const F weight = set(p[(row + r) * kPageTokens + n]);
        for (int i = 0; i < 4; ++i) s[r][i] = fma(weight, value[i], s[r][i]);
      }
    }
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < 4; ++i) {
        float* out = b.out + (row + r) * kAttnDim + d + kLanes * i;
        store(out, fma(load(out), set(correction[row + r]), s[r][i]));
      }
  }
}

inline float exp_of(float x) {
  float lanes[kLanes];
  store(lanes, exp(set(x)));
  return lanes[0];
}

// Turns a row of scores into weights in place and updates maximum and total; returns the correction of what was summed
// before. A row that sees nothing of the block keeps its state: weights 0, correction 1.
inline float attend_softmax(float* scores, int visible, float* maximum, float* total) {
  F s[4];
  if (visible <= 0) {
    for (int i = 0; i < 4; ++i) store(scores + kLanes * i, set(0.0f));
    return 1.0f;
  }
  const F hidden = set(-INFINITY), limit = set(static_cast<float>(visible));
  for (int i = 0; i < 4; ++i) {
    const F position = add(iota(), set(static_cast<float>(kLanes * i)));
    s[i] = select_lt(position, limit, load(scores + kLanes * i), hidden);
  }
  const float block_top = reduce_max(max(max(s[0], s[1]), max(s[2], s[3])));
  const float top = *maximum > block_top ? *maximum : block_top;
  for (int i = 0; i < 4; ++i) {
    s[i] = exp(sub(s[i], set(top)));
    store(scores + kLanes * i, s[i]);
  }
  const float correction = exp_of(*maximum - top);
  *total = *total * correction + reduce_add(join(s));
  *maximum = top;
  return correction;
}

void attend_block(const AttendBlock& b) {
  alignas(64) float scores[kAttendRows * kPageTokens];
  float correction[kAttendRows];
  int row = 0;
  for (; row + kAttendTile <= b.rows; row += kAttendTile) attend_scores<kAttendTile>(b, row, scores);
  for (; row < b.rows; ++row) attend_scores<1>(b, row, scores);
  int n_positions = 0;
  for (int r = 0; r < b.rows; ++r) {
    correction[r] = attend_softmax(scores + r * kPageTokens, b.visible[r], b.maximum + r, b.total + r);
    if (b.visible[r] > n_positions) n_positions = b.visible[r];
  }
  // Positions that only other rows of this call see have weight 0 here, which leaves a sum as it is.
  row = 0;
  for (; row + kAttendTile <= b.rows; row += kAttendTile)
    attend_values<kAttendTile>(b, row, n_positions, scores, correction);
  for (; row < b.rows; ++row) attend_values<1>(b, row, n_positions, scores, correction);
}

void attend_merge(float* maximum, float* total, float* out, const float* span_maximum, const float* span_total,
                  const float* span_out, int rows) {
  for (int r = 0; r < rows; ++r) {
    const float top = maximum[r] > span_maximum[r] ? maximum[r] : span_maximum[r];
    if (top == -INFINITY) continue;  // neither has seen anything
    const float before = exp_of(maximum[r] - top), span = exp_of(span_maximum[r] - top);
    total[r] = total[r] * before + span_total[r] * span;
    maximum[r] = top;
    for (int d = 0; d < kAttnDim; d += kLanes) {
      float* o = out + r * kAttnDim + d;
      store(o, fma(load(o), set(before), mul(load(span_out + r * kAttnDim + d), set(span))));
    }
  }
}

void attend_finish(const float* x, float total, const float* gate, float* y) {
  const F inverse = set(1.0f / total);
  for (int d = 0; d < kAttnDim; d += kLanes) store(y + d, mul(mul(load(x + d), inverse), sigmoid(load(gate + d))));
}

void embed_row(const std::byte* codes, const std::byte* scales, const std::byte* biases, int n_groups, float* y) {
  for (int g = 0; g < n_groups; ++g) {
    std::uint16_t scale_bits, bias_bits;
    std::memcpy(&scale_bits, scales + 2 * g, 2);
    std::memcpy(&bias_bits, biases + 2 * g, 2);
    const std::uint32_t wide_scale = std::uint32_t{scale_bits} << 16, wide_bias = std::uint32_t{bias_bits} << 16;
    float scale, bias;
    std::memcpy(&scale, &wide_scale, 4);
    std::memcpy(&bias, &wide_bias, 4);
    for (int i = 0; i < kGroupSize; ++i) {
      const auto byte = static_cast<unsigned>(codes[g * 32 + i / 2]);
      y[g * kGroupSize + i] = scale * static_cast<float>((byte >> (4 * (i & 1))) & 15u) + bias;
    }
  }
}

constexpr Kernels make_table(std::string_view name, int panel_rows, decltype(Kernels::gemm4) gemm4_function) {
  return {name,      panel_rows,    gemm4_function, &gemm8,         &quantize,    &group_sums,
          &rms_norm, &l2_norm,      &mul_silu,      &rope_scale,    &scatter_add, &conv_silu,
          &gdn_scan, &attend_block, &attend_merge,  &attend_finish, &embed_row};
}

}  // namespace
}  // namespace lily::cpu
