// From a checkpoint's tensors to the blocks of layout.h. Codes, scales and biases are moved, never changed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/layout.h"
#include "tensor/view.h"

namespace lily::cpu {

// One stripe: rows first_row .. first_row + n_rows (at most 16; the rest of the lanes is zero) of expert `expert`.
// `to` takes in / 64 blocks.
void pack_stripe4(const AffineView& from, std::int64_t expert, std::int64_t first_row, int n_rows, std::byte* to);
// The same to 8-bit blocks; 4-bit codes are widened.
void pack_stripe8(const AffineView& from, std::int64_t expert, std::int64_t first_row, int n_rows, std::byte* to);

// Row-major form for the embedding: a row is its codes in MLX order, then its scales, then its biases.
constexpr std::size_t embedding_row_bytes(int hidden) {
  return static_cast<std::size_t>(hidden / 2 + hidden / kGroupSize * 4);
}
void pack_embedding_row(const AffineView& from, std::int64_t row, std::byte* to);

}  // namespace lily::cpu
