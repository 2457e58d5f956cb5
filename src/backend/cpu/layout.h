// How weights, activations and keys lie in memory on the CPU. docs/format.md draws each bit by bit.
//
// A matrix is cut into stripes of 16 output rows; a stripe is a run of blocks, one for each group of 64 inputs. A SIMD
// lane is an output row: sixteen dot products grow side by side and nothing is ever summed across lanes. Streaming a
// stripe is one sequential read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/shape.h"

namespace lily::cpu {

inline constexpr int kLanes = 16;  // output rows of a stripe, floats of a vector

// Block of 4-bit codes: 8 rows of 64 bytes, then 16 scales and 16 biases (bfloat16). Byte 4 * lane + i of row j holds
// input 8 j + i in its low and input 8 j + 4 + i in its high nibble.
inline constexpr int kBlock4Codes = 512;
inline constexpr int kBlock4Bytes = kBlock4Codes + 4 * kLanes;
// Block of 8-bit codes: byte 4 * lane + i of row j (of 16) holds input 4 j + i.
inline constexpr int kBlock8Codes = 1024;
inline constexpr int kBlock8Bytes = kBlock8Codes + 4 * kLanes;

struct PackedMatrix {
  const std::byte* data = nullptr;
  int n_stripes = 0;
  int n_groups = 0;

  std::size_t stripe_bytes(int block_bytes) const {
    return static_cast<std::size_t>(n_groups) * static_cast<std::size_t>(block_bytes);
  }
  const std::byte* stripe4(std::int64_t stripe) const {
    return data + static_cast<std::size_t>(stripe) * stripe_bytes(kBlock4Bytes);
  }
  const std::byte* stripe8(std::int64_t stripe) const {
    return data + static_cast<std::size_t>(stripe) * stripe_bytes(kBlock8Bytes);
  }
};

// How activations are quantised before they meet 4-bit weights, by groups of 64 with one float32 scale:
//   Int16: x = scale * (256 h + l), |256 h + l| <= 32639, as two planes of int8 (15 bits: finer than bfloat16)
//   Int8:  x = scale * h, |h| <= 127, one plane
// Either way the dot product of a group is an exact integer, the same on every instruction set.
enum class Precision : std::uint8_t { Int16, Int8 };

constexpr int planes_of(Precision precision) {
  return precision == Precision::Int16 ? 2 : 1;
}

// Quantised rows, cut into panels of `panel_rows` that a kernel multiplies together (the last may be shorter). Group g
// of row r sits at entry(r, g): rows of a panel are neighbours within a group, so that a kernel walks the memory
// forwards.
struct QuantRows {
  std::int8_t* codes = nullptr;  // [entry][plane][64]; plane 0 is h
  float* scales = nullptr;       // [entry]
  float* sums = nullptr;         // [entry], scale * sum of codes
  int n_rows = 0;
  int n_groups = 0;
  int panel_rows = 1;
  int planes = 2;

  int n_panels() const { return (n_rows + panel_rows - 1) / panel_rows; }
  int rows_of_panel(int panel) const {
    const int rest = n_rows - panel * panel_rows;
    return rest < panel_rows ? rest : panel_rows;
  }
  std::size_t panel_entry(int panel) const {
    return static_cast<std::size_t>(panel) * static_cast<std::size_t>(panel_rows) * static_cast<std::size_t>(n_groups);
  }
  std::size_t entry(int row, int group) const {
    const int panel = row / panel_rows;
    return panel_entry(panel) + static_cast<std::size_t>(group * rows_of_panel(panel) + row % panel_rows);
  }
  std::size_t entry_bytes() const { return static_cast<std::size_t>(planes) * kGroupSize; }
};

// Keys and values lie in pages of 64 positions, bfloat16, per layer and kv head: keys [dim][64 positions], values
// [64 positions][dim]. Runs of 32 numbers are stored as 16 pairs (i, 16 + i), so that one 64-byte load becomes two
// vectors by a shift and by nothing.
inline constexpr int kPageTokens = 64;

constexpr int paired_index(int i) {
  return (i & ~31) + 2 * (i & 15) + ((i >> 4) & 1);
}

// The gated delta memory of a head, [128 key dims][128 value dims], is cut into column slices of 32 that stay in the L1
// cache while a chunk runs over them: [slice][key dim][32].
inline constexpr int kSliceColumns = 32;

}  // namespace lily::cpu
