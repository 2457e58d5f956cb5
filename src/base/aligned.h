// Large aligned memory: zeroed pages straight from the system, with huge pages where it offers them, so that a stream
// over gigabytes of weights does not pay for address translation.
#pragma once

#include <cstddef>
#include <utility>

#include "base/error.h"

namespace lily {

inline constexpr std::size_t kCacheLine = 64;

// Owner of one mapping; movable. data() is aligned to 2 MiB for mappings of that size or more, else to 4 KiB.
class AlignedMemory {
 public:
  AlignedMemory() = default;
  // Zeroed memory. OutOfMemory names `what` and the size.
  static Result<AlignedMemory> allocate(std::size_t bytes, const char* what);
  ~AlignedMemory();
  AlignedMemory(AlignedMemory&& other) noexcept { swap(other); }
  AlignedMemory& operator=(AlignedMemory&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void swap(AlignedMemory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapping_bytes_, other.mapping_bytes_);
  }

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
};

// Bytes that the system could give to new memory now (free and reclaimable); 0 if it does not say.
std::size_t available_memory();

}  // namespace lily
