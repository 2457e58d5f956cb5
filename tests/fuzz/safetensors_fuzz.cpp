// Any bytes as a safetensors file: refused, or every tensor lies inside the file and has the bytes its shape needs.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto header = lily::parse_safetensors(file, "fuzz");
  if (!header) {
    LILY_CHECK(header.error().message.find('\n') == std::string::npos && header.error().message.size() < 4096);
    return 0;
  }
  const std::byte* next = file.data() + header->data_begin;
  for (const lily::SafetensorsEntry& tensor : header->tensors) {
    LILY_CHECK(tensor.data.data() == next);
    std::uint64_t bytes = static_cast<std::uint64_t>(lily::safetensors_dtype_bytes(tensor.dtype));
    for (const std::int64_t size_of_dim : tensor.dims) bytes *= static_cast<std::uint64_t>(size_of_dim);
    LILY_CHECK(bytes == tensor.data.size());
    next += bytes;
  }
  LILY_CHECK(next == file.data() + size);
  return 0;
}
