// The header of a safetensors file: 8 bytes of little-endian length, JSON, then the data. Every number is checked
// before it is used: lengths, offsets, overlaps, gaps, and shape times element size against bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lily {

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as written: "U32", "BF16", ...
  std::vector<std::int64_t> dims;
  std::span<const std::byte> data;  // inside the file, unaligned
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // in the order of their data
  std::uint64_t data_begin = 0;           // offset of the data in the file
};

// `file` is the whole file; the result points into it. Errors (Corrupt, Unsupported for a foreign format) begin with
// `label` and name the tensor.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, const std::string& label);

// Bytes of one element, 0 for a dtype that the format does not know or that is narrower than a byte.
int safetensors_dtype_bytes(std::string_view dtype);

}  // namespace lily
