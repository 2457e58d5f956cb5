// A file being written in one go. Until it is committed its destruction removes it, so that a full disk or an
// interrupted job leaves no half of a file behind.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/error.h"

namespace lily {

class OutputFile {
 public:
  // Creates or replaces `path`. Errors: Io.
  static Result<OutputFile> create(const std::filesystem::path& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  // Appends. Errors: Io, with the system's reason ("No space left on device").
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  // Closes the file and keeps it.
  Result<void> commit();

 private:
  OutputFile(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::filesystem::path path_;
};

// Writes a small file whole.
Result<void> write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace lily
