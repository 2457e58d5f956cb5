// The files of the published checkpoint by size and SHA-256, so that a download can be told from a damaged one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lily {

struct KnownFile {
  std::string_view name;
  std::uint64_t bytes;
  std::string_view sha256;
};

inline constexpr std::string_view kKnownRevision =
    "mlx-community/Qwen3.6-35B-A3B-4bit at 38740b847e4cb78f352aba30aa41c76e08e6eb46";

// What that revision needs for text; weights last.
std::span<const KnownFile> known_files();

}  // namespace lily
