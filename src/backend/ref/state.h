// What a sequence leaves behind in each layer, and its form on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/shape.h"

namespace lily::ref {

// Attention layer: one bfloat16 key and value a token; keys are normalised and rotated.
struct KvCache {
  std::vector<std::uint16_t> keys, values;  // [length, K, head_dim]
};

// Gated DeltaNet layer; of fixed size.
struct GdnState {
  std::vector<float> memory;  // [gdn_v_heads, gdn_head_dim (key), gdn_head_dim (value)]
  std::vector<float> tail;    // [conv_width - 1, conv_dim], samples before the convolution, oldest first
};

struct State {
  // Empty sequence; memory for `capacity` tokens is reserved, so that running it does not allocate.
  State(const Shape& shape, std::int64_t capacity);

  // Takes over another state's contents and keeps its own reservation.
  void copy_from(const State& other);
  std::size_t bytes() const;  // in use, not reserved

  std::int64_t length = 0;
  std::vector<KvCache> attention;  // by Shape::attention_index
  std::vector<GdnState> gdn;       // by Shape::gdn_index
};

// Bytes of a state of that length.
std::size_t state_bytes(const Shape& shape, std::int64_t length);

// Header (magic, version, identity, length, checksum) and then every array in layer order, little-endian. `model_key`
// names the weights: a state is refused (InvalidArgument) under another key, Corrupt if the bytes are damaged.
std::vector<std::byte> serialize_state(const Shape& shape, std::string_view model_key, const State& state);
Result<State> deserialize_state(const Shape& shape, std::string_view model_key, std::span<const std::byte> bytes);

}  // namespace lily::ref
