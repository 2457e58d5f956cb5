// The files of a checkpoint, wherever they are: a directory or the binary itself.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/mmap_file.h"

namespace lily {

struct EmbeddedFile {
  std::string_view name;
  std::span<const std::byte> bytes;
};

// The files of models/lily-tiny that were there when the program was built; empty if there were none.
std::span<const EmbeddedFile> embedded_model_files();

class ModelFiles {
 public:
  // Errors: NotFound, Io, and Unsupported for a path that is a file of a known foreign format.
  static Result<ModelFiles> open_directory(const std::filesystem::path& directory);
  // The files must outlive the result.
  static ModelFiles in_memory(std::string label, std::span<const EmbeddedFile> files);

  const std::string& label() const { return label_; }               // directory as given, for messages
  const std::vector<std::string>& names() const { return names_; }  // sorted; links included, subdirectories not
  bool has(std::string_view name) const;
  std::string path(std::string_view name) const;  // label/name, for messages

  // A small file as text. Errors: NotFound, Io, Corrupt (too large).
  Result<std::string> read(std::string_view name, std::size_t max_bytes) const;
  // A large file without copying it; stays valid as long as this object.
  Result<std::span<const std::byte>> map(const std::string& name);

  // See MappedFile::release(); nothing happens to embedded files.
  void release(std::span<const std::byte> part) const;

 private:
  std::string label_;
  std::filesystem::path directory_;
  std::vector<std::string> names_;
  std::span<const EmbeddedFile> memory_;
  std::map<std::string, MappedFile, std::less<>> mapped_;
};

}  // namespace lily
