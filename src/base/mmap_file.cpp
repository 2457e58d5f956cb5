// POSIX files: every failure becomes an error with the path and the system's reason.
#include "base/mmap_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace lily {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  int get() const { return fd_; }

 private:
  int fd_;
};

struct OpenFile {
  FileDescriptor fd;
  std::size_t size;
};

tl::unexpected<Error> open_error(const std::filesystem::path& path, int error) {
  std::error_code ignored;
  if (error == ENOENT && std::filesystem::is_symlink(path, ignored))
    return fail(ErrorCode::NotFound, "{}: dangling link to {}; download the file again", path.string(),
                std::filesystem::read_symlink(path, ignored).string());
  if (error == ENOENT || error == ENOTDIR) return fail(ErrorCode::NotFound, "{}: no such file", path.string());
  return fail(ErrorCode::Io, "{}: cannot open: {}", path.string(), std::strerror(error));
}

Result<OpenFile> open_regular(const std::filesystem::path& path) {
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return open_error(path, errno);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0)
    return fail(ErrorCode::Io, "{}: cannot stat: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::Io, "{}: not a regular file", path.string());
  return OpenFile{std::move(fd), static_cast<std::size_t>(info.st_size)};
}

// The whole pages of a mapping that lie inside [data, data + size).
std::pair<std::byte*, std::size_t> inner_pages(std::span<const std::byte> part) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<std::uintptr_t>(part.data()) + page - 1) / page * page;
  const auto last = (reinterpret_cast<std::uintptr_t>(part.data()) + part.size()) / page * page;
  return {reinterpret_cast<std::byte*>(first), last > first ? last - first : 0};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  LILY_TRY(const OpenFile file, open_regular(path));
  if (file.size == 0) return MappedFile(nullptr, 0);
  void* const data = ::mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE, file.fd.get(), 0);
  if (data == MAP_FAILED) return fail(ErrorCode::Io, "{}: cannot map: {}", path.string(), std::strerror(errno));
  return MappedFile(static_cast<const std::byte*>(data), file.size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(std::span<const std::byte> part) const {
  LILY_DCHECK(part.empty() || (part.data() >= data_ && part.data() + part.size() <= data_ + size_));
  const auto [first, size] = inner_pages(part);
  if (size > 0) ::madvise(first, size, MADV_DONTNEED);
}

Result<std::string> read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  LILY_TRY(const OpenFile file, open_regular(path));
  if (file.size > max_bytes)
    return fail(ErrorCode::Corrupt, "{}: {} bytes, expected at most {}", path.string(), file.size, max_bytes);
  std::string text(file.size, '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(file.fd.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(ErrorCode::Io, "{}: cannot read: {}", path.string(), std::strerror(errno));
    if (n == 0) break;  // truncated since fstat
    done += static_cast<std::size_t>(n);
  }
  text.resize(done);
  return text;
}

}  // namespace lily
