// The kernels for AMX: a group of 64 inputs of 16 rows is exactly one tile, so that a block's unpacked codes are tile
// B, a panel's codes are tile A (one a plane), and the product is the 16 x 16 integers that every other table computes.
// The float part, the tails with few rows and all other kernels are those of AVX-512.
#include "backend/cpu/simd_avx512.h"
//
#include "backend/cpu/kernels_body.h"
//
#include "backend/cpu/gemm4_body.h"

namespace lily::cpu {
namespace {

constexpr int kTileRows = 16;
constexpr int kFewRows = 4;  // below and at this a tile is mostly empty and VNNI is faster

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// Tiles 0, 1: sums of the planes; 2, 3: activations; 4: weights.
inline void configure(int rows) {
  TileConfig config;
  for (int tile = 0; tile < 5; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = static_cast<std::uint8_t>(tile == 4 ? kTileRows : rows);
  }
  _tile_loadconfig(&config);
}

// Row n of the tile holds inputs 4 n .. 4 n + 3 of the 16 lanes.
inline void unpack(const std::byte* block, std::byte* tile) {
  for (int j = 0; j < 8; ++j) {
    const W both = load_bytes(block + 64 * j);
    _mm512_store_si512(tile + 128 * j, low_nibbles(both).v);
    _mm512_store_si512(tile + 128 * j + 64, high_nibbles(both).v);
  }
}

// Unpacking, tiles and the float part of three successive groups run at a time: a tile load waits for its stores to
// reach the cache, a tile store for the product, and none of that should be waited for.
template <int kPlanes>
void gemm4_tiles(const std::byte* stripe, int n_groups, const Panel& x, float* y, std::ptrdiff_t stride) {
  alignas(64) std::byte weights[2][kTileRows * 64];
  alignas(64) std::int32_t dots[2][kPlanes][kTileRows * kLanes];
  alignas(64) float acc[kTileRows * kLanes] = {};
  const auto multiply = [&](int g) {
    const std::int8_t* codes = x.codes + g * x.rows * kPlanes * kGroupSize;
    _tile_loadd(4, weights[g % 2], 64);
    _tile_zero(0);
    _tile_loadd(2, codes, kPlanes * kGroupSize);
    _tile_dpbsud(0, 2, 4);
    _tile_stored(0, dots[g % 2][0], 64);
    if constexpr (kPlanes == 2) {
      _tile_zero(1);
      _tile_loadd(3, codes + kGroupSize, kPlanes * kGroupSize);
      _tile_dpbsud(1, 3, 4);
      _tile_stored(1, dots[g % 2][kPlanes - 1], 64);
    }
  };
  const auto add_up = [&](int g) {
    const std::byte* parameters = stripe + static_cast<std::size_t>(g) * kBlock4Bytes + kBlock4Codes;
    const F scale = load_bf16(parameters), bias = load_bf16(parameters + 2 * kLanes);
    for (int r = 0; r < x.rows; ++r) {
      I dot{_mm512_load_si512(dots[g % 2][0] + r * kLanes)};
      if constexpr (kPlanes == 2) dot = add_i(shift_left8(dot), I{_mm512_load_si512(dots[g % 2][1] + r * kLanes)});
      const int entry = g * x.rows + r;
      F a = load(acc + r * kLanes);
      a = fma(mul(scale, set(x.scales[entry])), to_float(dot), a);
      a = fma(bias, set(x.sums[entry]), a);
      store(acc + r * kLanes, a);
    }
  };
  configure(x.rows);
  unpack(stripe, weights[0]);
  for (int g = 0; g < n_groups; ++g) {
    if (g + 1 < n_groups) unpack(stripe + static_cast<std::size_t>(g + 1) * kBlock4Bytes, weights[(g + 1) % 2]);
    multiply(g);
    if (g > 0) add_up(g - 1);
  }
  add_up(n_groups - 1);
  _tile_release();
  for (int r = 0; r < x.rows; ++r) store(y + r * stride, load(acc + r * kLanes));
}

void gemm4_amx(const std::byte* stripe, int n_groups, const Panel& x, int planes, float* y, std::ptrdiff_t stride) {
  if (x.rows <= kFewRows) return gemm4<kFewRows>(stripe, n_groups, x, planes, y, stride);
  if (planes == 2) return gemm4_tiles<2>(stripe, n_groups, x, y, stride);
  gemm4_tiles<1>(stripe, n_groups, x, y, stride);
}

}  // namespace

const Kernels& amx_kernels() {
  static constexpr Kernels kTable = make_table("amx", kTileRows, &gemm4_amx);
  return kTable;
}

}  // namespace lily::cpu
