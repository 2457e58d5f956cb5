// The file that holds one snapshot, little-endian:
//   magic "LILYSNAP" | version u32 | flags u32 (1: zstd) | key u64 | n_tokens u64 | raw_bytes u64 | stored_bytes u64 |
//   payload hash u64 | head hash u64 | tokens i32[n_tokens] | payload, stored_bytes of it
// Hashes are XXH3; the head's covers everything before it and the tokens. The key stands for all that must be the same
// for the payload to mean anything: checkpoint, backend, build. Reading trusts nothing and allocates nothing that the
// file's own size does not bear out, except the decompressed payload, which the caller limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "model/shape.h"

namespace lily {

struct SnapshotHead {
  std::vector<TokenId> tokens;
  bool compressed = false;
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t payload_hash = 0;
  std::size_t payload_offset = 0;  // in the file
};

struct PackedSnapshot {
  std::vector<std::byte> head;     // with the tokens
  std::vector<std::byte> payload;  // as stored
};

// Compresses if a sample of the payload shrinks by a tenth.
PackedSnapshot pack_snapshot(std::uint64_t key, std::span<const TokenId> tokens, std::vector<std::byte> payload);

// `file` is the whole file; only its head is read. Errors: Unsupported (another magic, version or key), Corrupt.
Result<SnapshotHead> read_snapshot_head(std::span<const std::byte> file, std::uint64_t key);

// The payload as it was before packing. Errors: Corrupt, OutOfMemory (more than max_bytes).
Result<std::vector<std::byte>> unpack_snapshot(const SnapshotHead& head, std::span<const std::byte> file,
                                               std::uint64_t max_bytes);

}  // namespace lily
