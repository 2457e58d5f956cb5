// A read-only stream over memory that no cache holds: each thread its own contiguous part, with and without software
// prefetch, whichever the machine likes better.
#include "base/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/aligned.h"
#include "base/thread_pool.h"

namespace lily {

namespace {

template <bool kPrefetch>
std::uint64_t read_all(const std::byte* data, std::size_t bytes) {
  constexpr std::size_t kWords = 32;  // four cache lines a turn
  std::uint64_t sums[kWords] = {};
  for (std::size_t at = 0; at + kWords * 8 <= bytes; at += kWords * 8) {
    std::uint64_t words[kWords];
    std::memcpy(words, data + at, sizeof words);
    if constexpr (kPrefetch)
      for (std::size_t line = 0; line < sizeof words; line += kCacheLine) __builtin_prefetch(data + at + 4096 + line);
    for (std::size_t i = 0; i < kWords; ++i) sums[i] ^= words[i];
  }
  std::uint64_t all = 0;
  for (std::uint64_t sum : sums) all ^= sum;
  return all;
}

}  // namespace

double read_bandwidth(int n_threads, std::size_t bytes_per_thread) {
  constexpr int kPasses = 10;
  ThreadPool pool(n_threads);
  const std::size_t threads = static_cast<std::size_t>(pool.size());
  const auto memory = AlignedMemory::allocate(threads * bytes_per_thread, "the bandwidth measurement");
  if (!memory) return 0;
  // Each thread touches its own part first, so that it lies near that thread.
  pool.run([&](int t) {
    std::memset(memory->data() + static_cast<std::size_t>(t) * bytes_per_thread, t + 1, bytes_per_thread);
  });
  std::atomic<std::uint64_t> sink{0};
  double best = 0;
  for (int i = 0; i < kPasses; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    pool.run([&](int t) {
      const std::byte* part = memory->data() + static_cast<std::size_t>(t) * bytes_per_thread;
      sink ^= i % 2 == 0 ? read_all<false>(part, bytes_per_thread) : read_all<true>(part, bytes_per_thread);
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(threads * bytes_per_thread) / seconds.count());
  }
  return best;
}

}  // namespace lily
