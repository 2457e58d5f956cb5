// The prefix cache's directory: one file a snapshot (cache_file.h), named by key and tokens, written by a thread of
// its own beside the serving one. A file appears whole or not at all (written aside, then renamed). Nothing here is
// ever an error for a request: what cannot be read is absent, what cannot be written is dropped, both with a warning.
//
// Files of other keys (another checkpoint, backend or build) lie in the same directory; they count for the limit and
// go first when they are the least recently used. Files that do not look like ours are left alone.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "model/shape.h"

namespace lily {

class SnapshotStore {
 public:
  // Makes the directory if need be. Errors: Io.
  static Result<std::unique_ptr<SnapshotStore>> open(const std::string& directory, std::uint64_t key,
                                                     std::size_t budget_bytes);
  ~SnapshotStore();  // finishes the writes under way

  // The tokens of every readable snapshot of this key that was there at open().
  const std::vector<std::vector<TokenId>>& found() const { return found_; }

  bool holds(std::span<const TokenId> tokens) const;
  // Marks a snapshot used. Returns the bytes of its file; 0 if there is none.
  std::size_t keep(std::span<const TokenId> tokens);
  // Errors: NotFound, Corrupt, OutOfMemory, Io. A file that is damaged is forgotten.
  Result<std::vector<std::byte>> load(std::span<const TokenId> tokens, std::uint64_t max_bytes);
  // Takes the payload to be written soon. False if too many wait, unless `patient`: then waits for room.
  bool write(std::span<const TokenId> tokens, std::vector<std::byte> payload, bool patient);
  void erase(std::span<const TokenId> tokens);
  // Waits until all that was taken is on disk.
  void flush();

  std::size_t budget_bytes() const { return budget_bytes_; }
  std::size_t entries() const;
  std::size_t bytes() const;

 private:
  struct File {
    std::size_t bytes = 0;
    std::uint64_t last_use = 0;
    bool ours = false;     // has this store's key
    bool pending = false;  // taken, not yet written
  };
  struct Job {
    std::string name;
    std::vector<TokenId> tokens;
    std::vector<std::byte> payload;
  };

  SnapshotStore(std::filesystem::path directory, std::uint64_t key, std::size_t budget_bytes);
  Result<void> scan();
  void adopt(const std::filesystem::path& path);
  std::string name_of(std::span<const TokenId> tokens) const;
  void write_jobs();
  Result<std::size_t> write_file(Job job) const;
  void keep_within_budget(const std::string& spared);
  bool is_pending(const std::string& name) const;
  void touch(const std::string& name);
  void forget(const std::string& name);

  const std::filesystem::path directory_;
  const std::uint64_t key_;
  const std::size_t budget_bytes_;
  std::vector<std::vector<TokenId>> found_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::string, File> files_;
  std::size_t bytes_ = 0;
  std::uint64_t uses_ = 0;
  std::deque<Job> jobs_;
  bool quit_ = false;
  std::thread writer_;
};

}  // namespace lily
