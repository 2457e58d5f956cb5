// Random weights that behave like trained ones where it matters: activations keep their size through all layers, the
// router spreads its choices, the recurrent state decays at rates from a token to a thousand, half of the scales are
// negative. Every byte is a function of (seed, tensor, position) alone, so any part can be made by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/layout.h"

namespace lily {

// One tensor of a file to be written.
struct SynthTensor {
  enum class Kind : std::uint8_t { Codes, Scales, Biases, Norm, Conv, ALog, DtBias, Vision };
  std::string name;  // full, as in the file
  std::vector<std::int64_t> dims;
  Kind kind = Kind::Vision;
  int bits = 4;              // Codes, Scales, Biases
  float weight_std = 0;      // Codes, Scales, Biases: wanted deviation of the weights
  std::uint64_t stream = 0;  // random stream; scales and biases of a module share one

  bool packed() const { return kind == Kind::Codes; }
  std::uint64_t bytes() const;
};

// All tensors of a shape in module order, as MLX names and shapes them.
std::vector<SynthTensor> synth_tensors(const Shape& shape, bool vision, std::uint64_t seed);

// Bytes [offset, offset + out.size()) of the tensor. Both are multiples of 8 or reach to the tensor's end.
void synth_fill(const SynthTensor& tensor, std::uint64_t offset, std::span<std::byte> out);

// A well mixed function of its arguments.
std::uint64_t synth_hash(std::uint64_t stream, std::uint64_t index);
std::uint64_t synth_stream(std::uint64_t seed, std::string_view name);

}  // namespace lily
