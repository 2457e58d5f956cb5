// The inner loops of the CPU backend, one table per instruction set. All tables compute the same bits: the same source
// (kernels_body.h) is compiled over a small vocabulary (simd_*.h), integer sums are exact, and every float operation
// and its order is written out, fused multiply-adds included. All vectors may be unaligned unless said otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "backend/cpu/layout.h"

namespace lily::cpu {

inline constexpr int kMaxPanelRows = 16;
inline constexpr int kAttendRows = 64;  // most query rows of one attend_block
inline constexpr int kGdnDim = 128;     // key and value dims of a delta head
inline constexpr int kAttnDim = 256;    // dims of an attention head

// Rows of one panel as a kernel sees them: codes [group][row][plane][64], scales and sums [group][row].
struct Panel {
  const std::int8_t* codes;
  const float* scales;
  const float* sums;
  int rows;
};

// One column slice of a delta head over consecutive tokens.
struct GdnScan {
  float* memory;       // [128][32], in and out
  const float* q;      // [n_tokens][128], normalised and scaled
  const float* k;      // [n_tokens][128], normalised
  const float* v;      // first of the slice's 32 columns, [n_tokens] rows of 128
  const float* decay;  // [n_tokens], in [0, 1]
  const float* beta;   // [n_tokens]
  float* out;          // as v
  int n_tokens;
};

// One block of 64 positions for `rows` queries: the online softmax.
struct AttendBlock {
  const std::uint16_t* keys;    // [256][64] paired
  const std::uint16_t* values;  // [64][256] paired
  const float* q;               // [rows][256], scaled
  const int* visible;           // [rows], positions of the block that the row may see, 0..64
  float* maximum;               // [rows], -infinity before the first block
  float* total;                 // [rows]
  float* out;                   // [rows][256], not yet divided by total
  int rows;                     // <= kAttendRows
};

struct Kernels {
  std::string_view name;
  int panel_rows;  // of QuantRows, the most rows that share an unpacked block

  // y[r][lane] = sum_k w[lane][k] x[r][k] over a stripe of 4-bit blocks; y rows `stride` floats apart.
  void (*gemm4)(const std::byte* stripe, int n_groups, const Panel& x, int planes, float* y, std::ptrdiff_t stride);
  // The same for 8-bit blocks and float32 rows x (stride floats apart), any number of rows.
  void (*gemm8)(const std::byte* stripe, int n_groups, const float* x, std::ptrdiff_t x_stride, const float* sums,
                int rows, float* y, std::ptrdiff_t stride);

  // Quantises n_groups groups of 64 of one row to the entries that start at codes/scales/sums, entry_stride apart.
  void (*quantize)(const float* x, int n_groups, int planes, std::int8_t* codes, float* scales, float* sums,
                   std::ptrdiff_t entry_stride);
  // sums[g] = sum of x over group g, for gemm8.
  void (*group_sums)(const float* x, int n_groups, float* sums);
  // y = rms_norm(x) * weight, n a multiple of 64; in place allowed.
  void (*rms_norm)(const float* x, const float* weight, int n, float* y);
  // y = x * scale / sqrt(sum x^2 + eps) over 128; in place allowed.
  void (*l2_norm)(const float* x, float eps, float scale, float* y);
  // y[i] = silu(z[i]) * x[i], n a multiple of 16.
  void (*mul_silu)(const float* z, const float* x, int n, float* y);
  // Rotates the first 2 * half dims of x in place, then scales all n.
  void (*rope_scale)(float* x, const float* cos, const float* sin, int half, int n, float scale);
  // y[r][16] += weight[r] * tile[r][16] at y + rows[r] * stride.
  void (*scatter_add)(const float* tile, int n_rows, const int* rows, const float* weight, float* y,
                      std::ptrdiff_t stride);
  // Four-tap causal convolution and SiLU over 128 channels: x rows x_stride apart, tail the three samples before
  // (tail_stride apart, oldest first; left as the last three), weight [4][128], y [n_tokens][128].
  void (*conv_silu)(const float* x, std::ptrdiff_t x_stride, float* tail, std::ptrdiff_t tail_stride,
                    const float* weight, int n_tokens, float* y);
  void (*gdn_scan)(const GdnScan& scan);
  void (*attend_block)(const AttendBlock& block);
  // Folds the state of a later span into (maximum, total, out): the merge of online softmax, rows of 256.
  void (*attend_merge)(float* maximum, float* total, float* out, const float* span_maximum, const float* span_total,
                       const float* span_out, int rows);
  // y = x / total * sigmoid(gate) over 256.
  void (*attend_finish)(const float* x, float total, const float* gate, float* y);
  // y = value of one embedding row: codes (MLX order, 32 bytes a group), scales, biases.
  void (*embed_row)(const std::byte* codes, const std::byte* scales, const std::byte* biases, int n_groups, float* y);
};

const Kernels& generic_kernels();
#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& amx_kernels();
#elif defined(__aarch64__)
const Kernels& neon_kernels();
#endif

// The tables that can run on this machine, best first; generic_kernels() is the last.
std::span<const Kernels* const> runnable_kernels();

// The best of them, or the one that the environment variable LILY_CPU_ISA names (generic, avx2, avx512, amx, neon);
// null if it names one that cannot run here.
const Kernels* choose_kernels();

}  // namespace lily::cpu
