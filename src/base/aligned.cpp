// Anonymous mappings and the system's own account of its memory.
#include "base/aligned.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <memory>

namespace lily {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Result<AlignedMemory> AlignedMemory::allocate(std::size_t bytes, const char* what) {
  AlignedMemory memory;
  if (bytes == 0) return memory;
  const bool huge = bytes >= kHugePage;
  const std::size_t mapping_bytes = round_up(bytes, 4096) + (huge ? kHugePage : 0);
  void* mapping = mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED)
    return fail(ErrorCode::OutOfMemory, "no memory for {}: {:.2f} GB wanted, the system offers {:.2f} GB", what,
                static_cast<double>(bytes) / 1e9, static_cast<double>(available_memory()) / 1e9);
  memory.mapping_ = mapping;
  memory.mapping_bytes_ = mapping_bytes;
  memory.size_ = bytes;
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  memory.data_ = reinterpret_cast<std::byte*>(huge ? round_up(address, kHugePage) : address);
#ifdef MADV_HUGEPAGE
  if (huge) madvise(memory.data_, round_up(bytes, 4096), MADV_HUGEPAGE);  // a hint: small pages work too
#endif
  return memory;
}

AlignedMemory::~AlignedMemory() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

std::size_t available_memory() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/meminfo", "r"), &std::fclose);
  if (!file) return 0;
  char line[256];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    unsigned long long kib = 0;
    if (std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1) return static_cast<std::size_t>(kib) * 1024;
  }
  return 0;
}

}  // namespace lily
