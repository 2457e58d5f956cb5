// A read-only stream over memory that no cache holds, with and without software prefetch in turn: the better counts.
#include "backend/cpu/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/aligned.h"
#include "base/thread_pool.h"

namespace lily::cpu {
namespace {

constexpr std::size_t kTotalBytes = std::size_t{1} << 30;
constexpr int kPasses = 10;

// Eight independent sums keep enough loads in flight for one core to reach what its path to memory allows. Hardware
// prefetchers stop at each page of 4 KiB; reaching over it by hand helps some processors.
template <bool kPrefetch>
std::uint64_t sum_of(const std::uint64_t* data, std::size_t count) {
  typedef std::uint64_t Lanes __attribute__((vector_size(32)));
  constexpr std::size_t kLanes = sizeof(Lanes) / sizeof(std::uint64_t);
  Lanes sums[8] = {};
  for (std::size_t i = 0; i + 8 * kLanes <= count; i += 8 * kLanes) {
    if constexpr (kPrefetch) {
      for (std::size_t line = 0; line < 8 * kLanes; line += 8) __builtin_prefetch(data + i + 512 + line);
    }
    for (std::size_t j = 0; j < 8; ++j) {
      Lanes value;
      std::memcpy(&value, data + i + j * kLanes, sizeof value);
      sums[j] += value;
    }
  }
  std::uint64_t total = 0;
  for (const Lanes& sum : sums) {
    for (std::size_t k = 0; k < kLanes; ++k) total += sum[k];
  }
  return total;
}

}  // namespace

Result<double> measure_read_bandwidth(int n_threads) {
  ThreadPool team(n_threads);
  const auto threads = static_cast<std::size_t>(team.size());
  const std::size_t share = kTotalBytes / threads / 4096 * 4096;
  std::vector<AlignedMemory> regions(threads);
  for (AlignedMemory& region : regions) {
    LILY_TRY(region, AlignedMemory::allocate(share, "measuring the read bandwidth"));
  }
  // Pages that were never written would all be the one page of zeros, in cache.
  team.run([&](int thread) { std::memset(regions[static_cast<std::size_t>(thread)].data(), 1, share); });

  std::vector<std::uint64_t> sums(threads * 8);  // a cache line apart
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    team.run([&](int thread) {
      const auto at = static_cast<std::size_t>(thread);
      const auto* words = regions[at].as<const std::uint64_t>();
      const std::size_t count = share / sizeof(std::uint64_t);
      sums[at * 8] = pass % 2 == 0 ? sum_of<false>(words, count) : sum_of<true>(words, count);
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(share * threads) / elapsed.count());
  }
  volatile std::uint64_t used = sums[0];  // keeps the reads
  static_cast<void>(used);
  return best;
}

}  // namespace lily::cpu
