#include "engine/cache_disk.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/mmap_file.h"
#include "engine/cache_file.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".snapshot";
constexpr std::size_t kMostJobs = 2;  // payloads that wait in memory
constexpr std::size_t kNameLength = 16 + 1 + 32;

bool is_our_name(const std::string& stem) {
  return stem.size() == kNameLength && stem[16] == '-' &&
         stem.find_first_not_of("0123456789abcdef-") == std::string::npos;
}

// What a process that died left half written.
bool is_abandoned(const fs::path& path) {
  if (path.extension() != ".part" || !is_our_name(path.filename().string().substr(0, kNameLength))) return false;
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - written > std::chrono::hours(1);
}

class Descriptor {
 public:
  explicit Descriptor(const fs::path& path)
      : fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool is_open() const { return fd_ >= 0; }
  bool write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return true;
  }
  bool sync() const { return ::fsync(fd_) == 0; }

 private:
  int fd_;
};

Result<void> write_aside(const fs::path& aside, const PackedSnapshot& packed) {
  const Descriptor file(aside);
  if (!file.is_open() || !file.write(packed.head) || !file.write(packed.payload) || !file.sync()) {
    return fail(ErrorCode::Io, "{}: {}", aside.string(), std::strerror(errno));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<SnapshotStore>> SnapshotStore::open(const std::string& directory, std::uint64_t key,
                                                           std::size_t budget_bytes) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return fail(ErrorCode::Io, "cannot make the cache directory {}: {}", directory, error.message());
  std::unique_ptr<SnapshotStore> store(new SnapshotStore(directory, key, budget_bytes));
  LILY_TRY_VOID(store->scan());
  store->writer_ = std::thread([raw = store.get()] { raw->write_jobs(); });
  return store;
}

SnapshotStore::SnapshotStore(fs::path directory, std::uint64_t key, std::size_t budget_bytes)
    : directory_(std::move(directory)), key_(key), budget_bytes_(budget_bytes) {}

SnapshotStore::~SnapshotStore() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
    changed_.notify_all();
  }
  if (writer_.joinable()) writer_.join();
}

Result<void> SnapshotStore::scan() {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> paths;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    if (is_abandoned(path)) {
      std::error_code ignored;
      fs::remove(path, ignored);
    }
    if (path.extension() != kSuffix || !is_our_name(path.stem().string())) continue;
    std::error_code unreadable;                            // vanished meanwhile: oldest
    if (!fs::is_regular_file(path, unreadable)) continue;  // opening a pipe would wait for its other end
    paths.emplace_back(fs::last_write_time(path, unreadable), path);
  }
  if (error) return fail(ErrorCode::Io, "cannot read the cache directory {}: {}", directory_.string(), error.message());
  std::ranges::sort(paths);
  for (const auto& [time, path] : paths) adopt(path);
  keep_within_budget("");
  return {};
}

// Counts a file that was there, and lists its tokens if it is of this key and sound.
void SnapshotStore::adopt(const fs::path& path) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return;
  File file{.bytes = mapped->bytes().size(), .last_use = ++uses_};
  if (auto head = read_snapshot_head(mapped->bytes(), key_)) {
    file.ours = name_of(head->tokens) == path.stem().string();
    if (file.ours) found_.push_back(std::move(head->tokens));
  } else if (head.error().code == ErrorCode::Corrupt) {
    log::warn("ignoring the damaged cache file {}: {}", path.string(), head.error().message);
  }
  bytes_ += file.bytes;
  files_.emplace(path.stem().string(), file);
}

std::string SnapshotStore::name_of(std::span<const TokenId> tokens) const {
  const XXH128_hash_t hash = XXH3_128bits(tokens.data(), tokens.size_bytes());
  return fmt::format("{:016x}-{:016x}{:016x}", key_, hash.high64, hash.low64);
}

bool SnapshotStore::holds(std::span<const TokenId> tokens) const {
  const std::lock_guard lock(mutex_);
  const auto it = files_.find(name_of(tokens));
  return it != files_.end() && it->second.ours;
}

std::size_t SnapshotStore::keep(std::span<const TokenId> tokens) {
  const std::string name = name_of(tokens);
  std::size_t bytes = 0;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !is_pending(name); });
    const auto it = files_.find(name);
    if (it == files_.end() || !it->second.ours) return 0;
    bytes = it->second.bytes;
  }
  touch(name);
  return bytes;
}

// The mutex is held.
bool SnapshotStore::is_pending(const std::string& name) const {
  const auto it = files_.find(name);
  return it != files_.end() && it->second.pending;
}

Result<std::vector<std::byte>> SnapshotStore::load(std::span<const TokenId> tokens, std::uint64_t max_bytes) {
  const std::string name = name_of(tokens);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !is_pending(name); });
    if (!files_.contains(name)) return fail(ErrorCode::NotFound, "{} is not in the cache directory", name);
  }
  const fs::path path = directory_ / (name + std::string(kSuffix));
  const auto read = [&]() -> Result<std::vector<std::byte>> {
    LILY_TRY(const MappedFile file, MappedFile::open(path));
    LILY_TRY(const SnapshotHead head, read_snapshot_head(file.bytes(), key_));
    if (!std::ranges::equal(head.tokens, tokens)) return fail(ErrorCode::Corrupt, "it holds other tokens");
    return unpack_snapshot(head, file.bytes(), max_bytes);
  };
  auto payload = read();
  if (payload) {
    touch(name);
  } else {
    log::warn("ignoring the cache file {}: {}", path.string(), payload.error().message);
    forget(name);
  }
  return payload;
}

void SnapshotStore::touch(const std::string& name) {
  std::error_code ignored;  // the order of files after a restart is a convenience
  fs::last_write_time(directory_ / (name + std::string(kSuffix)), fs::file_time_type::clock::now(), ignored);
  const std::lock_guard lock(mutex_);
  if (const auto it = files_.find(name); it != files_.end()) it->second.last_use = ++uses_;
}

// The file stays where it is, but no request comes back to it.
void SnapshotStore::forget(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (const auto it = files_.find(name); it != files_.end()) it->second.ours = false;
}

bool SnapshotStore::write(std::span<const TokenId> tokens, std::vector<std::byte> payload, bool patient) {
  Job job{.name = name_of(tokens), .tokens = {tokens.begin(), tokens.end()}, .payload = std::move(payload)};
  std::unique_lock lock(mutex_);
  if (patient) changed_.wait(lock, [&] { return jobs_.size() < kMostJobs; });
  if (jobs_.size() >= kMostJobs) return false;
  File& file = files_[job.name];
  bytes_ -= file.bytes;
  file = {.last_use = ++uses_, .ours = true, .pending = true};
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return true;
}

void SnapshotStore::erase(std::span<const TokenId> tokens) {
  const std::string name = name_of(tokens);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_pending(name); });
  const auto it = files_.find(name);
  if (it == files_.end()) return;
  bytes_ -= it->second.bytes;
  files_.erase(it);
  std::error_code ignored;  // already gone is as good
  fs::remove(directory_ / (name + std::string(kSuffix)), ignored);
}

void SnapshotStore::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return std::ranges::none_of(files_, [](const auto& entry) { return entry.second.pending; }); });
}

// The writer's thread.
void SnapshotStore::write_jobs() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return quit_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    const std::string name = job.name;
    lock.unlock();
    const Result<std::size_t> written = write_file(std::move(job));
    lock.lock();
    if (written) {
      File& file = files_.at(name);
      file.bytes = *written;
      file.pending = false;
      bytes_ += *written;
      keep_within_budget(name);
    } else {
      log::warn("a cached prefix was not written: {}", written.error().message);
      files_.erase(name);
    }
    changed_.notify_all();
  }
}

// Bytes of the new file. Leaves nothing behind if it fails.
Result<std::size_t> SnapshotStore::write_file(Job job) const {
  const fs::path aside = directory_ / fmt::format("{}.{}.part", job.name, ::getpid());
  std::error_code error;
  try {
    const PackedSnapshot packed = pack_snapshot(key_, job.tokens, std::move(job.payload));
    const std::size_t size = packed.head.size() + packed.payload.size();
    if (size > budget_bytes_) return fail(ErrorCode::Io, "{} bytes exceed the directory's limit", size);
    Result<void> written = write_aside(aside, packed);
    if (written) fs::rename(aside, directory_ / (job.name + std::string(kSuffix)), error);
    if (written && !error) return size;
    if (written) written = fail(ErrorCode::Io, "{}: {}", aside.string(), error.message());
    fs::remove(aside, error);
    return tl::unexpected<Error>(written.error());
  } catch (const std::bad_alloc&) {
    fs::remove(aside, error);
    return fail(ErrorCode::OutOfMemory, "no memory to compress {}", job.name);
  }
}

// Removes files, the least recently used first. The mutex is held (or nobody else is there yet).
void SnapshotStore::keep_within_budget(const std::string& spared) {
  while (bytes_ > budget_bytes_) {
    auto oldest = files_.end();
    for (auto it = files_.begin(); it != files_.end(); ++it) {
      if (it->first == spared || it->second.pending) continue;
      if (oldest == files_.end() || it->second.last_use < oldest->second.last_use) oldest = it;
    }
    if (oldest == files_.end()) return;
    std::error_code ignored;
    fs::remove(directory_ / (oldest->first + std::string(kSuffix)), ignored);
    bytes_ -= oldest->second.bytes;
    files_.erase(oldest);
  }
}

std::size_t SnapshotStore::entries() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(files_, [](const auto& entry) { return entry.second.ours; }));
}

std::size_t SnapshotStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace lily
