// POSIX output; a file that is not committed is unlinked.
#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace lily {
namespace {

tl::unexpected<Error> write_error(const std::filesystem::path& path, int error) {
  return fail(ErrorCode::Io, "{}: cannot write: {}{}", path.string(), std::strerror(error),
              error == ENOSPC || error == EDQUOT ? "; make room or choose another place" : "");
}

// Closes and removes a file; a device or pipe that was given as the path stays.
void discard(int fd, const std::filesystem::path& path) {
  struct stat info{};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  ::close(fd);
  if (regular) ::unlink(path.c_str());
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return write_error(path, errno);
  return OutputFile(fd, path);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) discard(std::exchange(fd_, -1), path_);
}

Result<void> OutputFile::write(std::span<const std::byte> bytes) {
  LILY_CHECK(fd_ >= 0);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return write_error(path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> OutputFile::commit() {
  LILY_CHECK(fd_ >= 0);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) == 0) return {};
  const int error = errno;
  ::unlink(path_.c_str());
  return write_error(path_, error);
}

Result<void> write_file(const std::filesystem::path& path, std::string_view text) {
  LILY_TRY(OutputFile file, OutputFile::create(path));
  LILY_TRY_VOID(file.write(text));
  return file.commit();
}

}  // namespace lily
