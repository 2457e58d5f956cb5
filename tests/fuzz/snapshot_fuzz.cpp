// Snapshot files of the cache directory: any bytes are refused or read back consistently; a sound file with bytes
// changed never yields another content.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "engine/cache_file.h"

namespace {

constexpr std::uint64_t kKey = 42;
constexpr std::uint64_t kMostBytes = 1 << 20;

void require(bool condition) {
  if (!condition) std::abort();
}

// The input is a file.
void read_as_file(std::span<const std::byte> file) {
  const auto head = lily::read_snapshot_head(file, kKey);
  if (!head) return;
  require(head->payload_offset + head->stored_bytes == file.size());
  const auto payload = lily::unpack_snapshot(*head, file, kMostBytes);
  require(!payload || payload->size() == head->raw_bytes);
}

// The input is a payload, and the first bytes say where its file is damaged.
void damage_a_file(std::span<const std::byte> input) {
  if (input.size() < 5) return;
  const std::size_t at = std::to_integer<std::size_t>(input[0]) << 8 | std::to_integer<std::size_t>(input[1]);
  const std::byte change = input[2];
  const std::size_t cut = std::to_integer<std::size_t>(input[3]);
  const std::vector<lily::TokenId> tokens(1 + std::to_integer<std::size_t>(input[4]), 7);
  const std::vector<std::byte> payload(input.begin() + 5, input.end());
  lily::PackedSnapshot packed = lily::pack_snapshot(kKey, tokens, payload);
  std::vector<std::byte> file = std::move(packed.head);
  file.insert(file.end(), packed.payload.begin(), packed.payload.end());
  const bool is_damaged = change != std::byte{0} || cut > 0;
  file[at % file.size()] ^= change;
  file.resize(file.size() - std::min(cut, file.size()));
  const auto head = lily::read_snapshot_head(file, kKey);
  if (!head) return require(is_damaged);
  const auto read = lily::unpack_snapshot(*head, file, kMostBytes);
  if (!read) return require(is_damaged || payload.size() > kMostBytes);
  require(std::ranges::equal(*read, payload) && head->tokens == tokens);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  read_as_file(input);
  damage_a_file(input);
  return 0;
}
