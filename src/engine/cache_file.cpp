#include "engine/cache_file.h"

#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>

namespace lily {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 8> kMagic{'L', 'I', 'L', 'Y', 'S', 'N', 'A', 'P'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kCompressed = 1;
constexpr int kLevel = 1;  // of zstd: faster than the disk
constexpr std::size_t kSampleBytes = 1 << 18;

struct FixedHead {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t flags = 0;
  std::uint64_t key = 0;
  std::uint64_t n_tokens = 0;
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t payload_hash = 0;
  std::uint64_t head_hash = 0;
};
static_assert(sizeof(FixedHead) == 64);

std::uint64_t hash_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t head_hash(FixedHead fixed, std::span<const std::byte> tokens) {
  fixed.head_hash = 0;
  return XXH3_64bits_withSeed(tokens.data(), tokens.size(), hash_of(std::as_bytes(std::span(&fixed, 1))));
}

// Empty if it does not become smaller.
std::vector<std::byte> compressed(std::span<const std::byte> bytes) {
  std::vector<std::byte> out(ZSTD_compressBound(bytes.size()));
  const std::size_t size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), kLevel);
  if (ZSTD_isError(size) != 0 || size >= bytes.size()) return {};
  out.resize(size);
  return out;
}

bool is_compressible(std::span<const std::byte> bytes) {
  const std::size_t n = std::min(kSampleBytes, bytes.size());
  const std::vector<std::byte> sample = compressed(bytes.subspan((bytes.size() - n) / 2, n));
  return !sample.empty() && sample.size() < n - n / 10;
}

Result<std::vector<std::byte>> decompressed(std::span<const std::byte> stored, std::uint64_t raw_bytes) {
  if (ZSTD_getFrameContentSize(stored.data(), stored.size()) != raw_bytes) {
    return fail(ErrorCode::Corrupt, "the compressed payload is not of the size that the head gives");
  }
  std::vector<std::byte> raw(raw_bytes);
  const std::size_t size = ZSTD_decompress(raw.data(), raw.size(), stored.data(), stored.size());
  if (ZSTD_isError(size) != 0 || size != raw_bytes) return fail(ErrorCode::Corrupt, "the payload does not decompress");
  return raw;
}

}  // namespace

PackedSnapshot pack_snapshot(std::uint64_t key, std::span<const TokenId> tokens, std::vector<std::byte> payload) {
  PackedSnapshot packed;
  FixedHead fixed{.key = key, .n_tokens = tokens.size(), .raw_bytes = payload.size()};
  if (is_compressible(payload)) packed.payload = compressed(payload);
  if (packed.payload.empty()) {
    packed.payload = std::move(payload);
  } else {
    fixed.flags = kCompressed;
  }
  fixed.stored_bytes = packed.payload.size();
  fixed.payload_hash = hash_of(packed.payload);
  fixed.head_hash = head_hash(fixed, std::as_bytes(tokens));
  packed.head.resize(sizeof fixed + tokens.size_bytes());
  std::memcpy(packed.head.data(), &fixed, sizeof fixed);
  if (!tokens.empty()) std::memcpy(packed.head.data() + sizeof fixed, tokens.data(), tokens.size_bytes());
  return packed;
}

Result<SnapshotHead> read_snapshot_head(std::span<const std::byte> file, std::uint64_t key) {
  FixedHead fixed;
  if (file.size() < sizeof fixed) return fail(ErrorCode::Corrupt, "{} bytes are too few for a head", file.size());
  std::memcpy(&fixed, file.data(), sizeof fixed);
  if (fixed.magic != kMagic) return fail(ErrorCode::Unsupported, "not a snapshot file");
  if (fixed.version != kVersion) {
    return fail(ErrorCode::Unsupported, "version {} of the format; this program reads {}", fixed.version, kVersion);
  }
  if (fixed.key != key) return fail(ErrorCode::Unsupported, "made by another checkpoint, backend or build");
  const std::uint64_t rest = file.size() - sizeof fixed;
  if (fixed.n_tokens == 0 || fixed.n_tokens > rest / sizeof(TokenId) ||
      fixed.stored_bytes != rest - fixed.n_tokens * sizeof(TokenId)) {
    return fail(ErrorCode::Corrupt, "{} tokens and {} payload bytes do not make a file of {} bytes", fixed.n_tokens,
                fixed.stored_bytes, file.size());
  }
  const auto token_bytes = file.subspan(sizeof fixed, fixed.n_tokens * sizeof(TokenId));
  if (head_hash(fixed, token_bytes) != fixed.head_hash) return fail(ErrorCode::Corrupt, "the head's hash is wrong");
  if (fixed.flags > kCompressed || (fixed.flags == 0 && fixed.raw_bytes != fixed.stored_bytes)) {
    return fail(ErrorCode::Corrupt, "the head contradicts itself");
  }
  SnapshotHead head;
  head.tokens.resize(fixed.n_tokens);
  std::memcpy(head.tokens.data(), token_bytes.data(), token_bytes.size());
  head.compressed = fixed.flags == kCompressed;
  head.raw_bytes = fixed.raw_bytes;
  head.stored_bytes = fixed.stored_bytes;
  head.payload_hash = fixed.payload_hash;
  head.payload_offset = sizeof fixed + token_bytes.size();
  return head;
}

Result<std::vector<std::byte>> unpack_snapshot(const SnapshotHead& head, std::span<const std::byte> file,
                                               std::uint64_t max_bytes) {
  if (head.raw_bytes > max_bytes) {
    return fail(ErrorCode::OutOfMemory, "{} bytes, the cache holds {}", head.raw_bytes, max_bytes);
  }
  const auto stored = file.subspan(head.payload_offset);
  if (hash_of(stored) != head.payload_hash) return fail(ErrorCode::Corrupt, "the payload's hash is wrong");
  try {
    if (head.compressed) return decompressed(stored, head.raw_bytes);
    return std::vector<std::byte>(stored.begin(), stored.end());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::OutOfMemory, "no memory for {} bytes", head.raw_bytes);
  }
}

}  // namespace lily
