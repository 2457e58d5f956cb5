// What test_affine.py talks to. Standard input: bits and the row length as two 32-bit integers, then rows of float32.
// Standard output, for each row: packed codes, scales, biases.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "tensor/affine4.h"

int main() {
  std::int32_t head[2];
  if (std::fread(head, sizeof head, 1, stdin) != 1) return 1;
  const int bits = head[0];
  const auto n = static_cast<std::size_t>(head[1]);
  std::vector<float> row(n);
  std::vector<std::byte> packed(n * static_cast<std::size_t>(bits) / 8);
  std::vector<std::uint16_t> scales(n / lily::kGroupSize), biases(n / lily::kGroupSize);
  while (std::fread(row.data(), sizeof(float), n, stdin) == n) {
    lily::affine_quantize_row(row, bits, packed, scales, biases);
    std::fwrite(packed.data(), 1, packed.size(), stdout);
    std::fwrite(scales.data(), sizeof(std::uint16_t), scales.size(), stdout);
    std::fwrite(biases.data(), sizeof(std::uint16_t), biases.size(), stdout);
  }
  return 0;
}
