// Saved logits: a safetensors file that this program, numpy and mlx write and read alike.
//   tokens  I32 [T]     the windows one after another
//   starts  I32 [W]     where each window begins in tokens; the first is 0
//   logits  F32 [T, V]  row i is what follows tokens[i], given the tokens of its window up to i
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/mmap_file.h"
#include "model/shape.h"

namespace lily::apps {

using Windows = std::vector<std::vector<TokenId>>;

class SavedLogits {
 public:
  // Errors: those of reading a safetensors file; Corrupt for tensors that do not fit together; InvalidArgument for
  // another vocabulary than `vocab`.
  static Result<SavedLogits> open(const std::filesystem::path& path, int vocab);

  const Windows& windows() const { return windows_; }
  // Copies row `index` (over all windows) into out, [V].
  void row(std::int64_t index, std::span<float> out) const;

 private:
  explicit SavedLogits(MappedFile file) : file_(std::move(file)) {}
  MappedFile file_;
  Windows windows_;
  std::span<const std::byte> logits_;
};

// Writes rows as they come; the file gets its name once it is whole.
class LogitsWriter {
 public:
  static Result<LogitsWriter> create(const std::string& path, const Windows& windows, int vocab);
  Result<void> add(std::span<const float> rows);
  Result<void> finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  LogitsWriter(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  Result<void> put(const void* data, std::size_t bytes);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace lily::apps
