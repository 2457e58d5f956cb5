// Recognises what is not an MLX affine 4-bit checkpoint, so that a refusal names the format that was found and the one
// that is wanted instead of the first key that happens to be missing.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace lily {

// Ends every refusal of a foreign format.
inline constexpr std::string_view kWanted =
    "wanted: Qwen3.6-35B-A3B in MLX affine 4-bit, group 64 (for instance mlx-community/Qwen3.6-35B-A3B-4bit)";

// What the first bytes of a file that should be safetensors give away: "a GGUF file", "a Git LFS pointer", ... or "".
std::string_view foreign_magic(std::span<const std::byte> file);

// For a path that exists and is not a directory.
Error not_a_directory_error(const std::filesystem::path& path);

// For a directory without config.json or without weights: Unsupported if it holds a known other format, else NotFound.
Error no_config_error(const std::string& label, const std::vector<std::string>& names);
Error no_weights_error(const std::string& label, const std::vector<std::string>& names);

// Unsupported if the configuration is of another architecture (dense, other family, drafter alone) or of another
// quantisation (none, AWQ, GPTQ, fp8, mxfp4, int8, other group size, ...). `label` is the file's name.
Result<void> refuse_foreign_config(const json::Object& config, const std::string& label);

}  // namespace lily
