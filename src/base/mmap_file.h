// Read-only view of a file through the page cache, and reading of small files whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/error.h"

namespace lily {

class MappedFile {
 public:
  // Follows links. Errors: NotFound (with the target of a dangling link), Io. An empty file maps to an empty span.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Valid until destruction. Another process that truncates the file meanwhile makes reads past its end fatal.
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Drops the whole pages inside `part` of bytes() from this process; touching them again reads them again.
  void release(std::span<const std::byte> part) const;

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The whole file as text. Errors as for MappedFile::open(), and Corrupt if it is larger than `max_bytes`.
Result<std::string> read_file(const std::filesystem::path& path, std::size_t max_bytes);

}  // namespace lily
