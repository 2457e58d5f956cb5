// A directory or memory behind one interface, so that the embedded model passes the same checks.
#include "model/model_files.h"

#include <algorithm>

#include "model/foreign.h"

namespace lily {

namespace fs = std::filesystem;

Result<ModelFiles> ModelFiles::open_directory(const fs::path& directory) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (status.type() == fs::file_type::not_found) {
    if (fs::is_symlink(directory, error))
      return fail(ErrorCode::NotFound, "{}: dangling link to {}", directory.string(),
                  fs::read_symlink(directory, error).string());
    return fail(ErrorCode::NotFound, "{}: no such directory; expected a checkpoint in MLX layout", directory.string());
  }
  if (error) return fail(ErrorCode::Io, "{}: cannot look at it: {}", directory.string(), error.message());
  if (status.type() != fs::file_type::directory) return tl::unexpected(not_a_directory_error(directory));

  ModelFiles files;
  files.label_ = directory.string();
  files.directory_ = directory;
  fs::directory_iterator entries(directory, error);
  if (error) return fail(ErrorCode::Io, "{}: cannot list it: {}", directory.string(), error.message());
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    std::error_code ignored;
    if (!entries->is_directory(ignored)) files.names_.push_back(entries->path().filename().string());
  }
  if (error) return fail(ErrorCode::Io, "{}: cannot list it: {}", directory.string(), error.message());
  std::sort(files.names_.begin(), files.names_.end());
  return files;
}

ModelFiles ModelFiles::in_memory(std::string label, std::span<const EmbeddedFile> memory) {
  ModelFiles files;
  files.label_ = std::move(label);
  files.memory_ = memory;
  for (const EmbeddedFile& file : memory) files.names_.emplace_back(file.name);
  std::sort(files.names_.begin(), files.names_.end());
  return files;
}

bool ModelFiles::has(std::string_view name) const {
  return std::binary_search(names_.begin(), names_.end(), name);
}

std::string ModelFiles::path(std::string_view name) const {
  return directory_.empty() ? label_ + "/" + std::string(name) : (directory_ / name).string();
}

Result<std::string> ModelFiles::read(std::string_view name, std::size_t max_bytes) const {
  if (!directory_.empty()) return read_file(directory_ / name, max_bytes);
  const auto file = std::ranges::find(memory_, name, &EmbeddedFile::name);
  if (file == memory_.end()) return fail(ErrorCode::NotFound, "{}: no such file", path(name));
  return std::string(reinterpret_cast<const char*>(file->bytes.data()), file->bytes.size());
}

Result<std::span<const std::byte>> ModelFiles::map(const std::string& name) {
  if (directory_.empty()) {
    const auto file = std::ranges::find(memory_, name, &EmbeddedFile::name);
    if (file == memory_.end()) return fail(ErrorCode::NotFound, "{}: no such file", path(name));
    return file->bytes;
  }
  const auto known = mapped_.find(name);
  if (known != mapped_.end()) return known->second.bytes();
  LILY_TRY(MappedFile mapped, MappedFile::open(directory_ / name));
  return mapped_.emplace(name, std::move(mapped)).first->second.bytes();
}

void ModelFiles::release(std::span<const std::byte> part) const {
  for (const auto& [name, file] : mapped_) {
    const std::span<const std::byte> all = file.bytes();
    if (!part.empty() && part.data() >= all.data() && part.data() + part.size() <= all.data() + all.size())
      return file.release(part);
  }
}

}  // namespace lily
