// Speed of the CPU kernels alone, for every instruction set of the machine: the 4-bit product over memory with one row
// (GB/s, beside what the same threads can read at all), over cached weights with many rows (GMAC/s a thread), the delta
// rule and attention (us a token and head). Threads are this program's argument; times are the best of several passes.
//
//   cmake --build build/release --target cpu_kernel_bench && build/release/bench/cpu_kernel_bench [threads]
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cpu/bandwidth.h"
#include "backend/cpu/kernels.h"
#include "base/aligned.h"
#include "base/check.h"
#include "base/thread_pool.h"

namespace lily::cpu {
namespace {

constexpr int kGroups = kQwen36_35B_A3B.hidden / kGroupSize;
constexpr std::size_t kStripeBytes = std::size_t{kGroups} * kBlock4Bytes;

// Processor time of this thread: other programs on the machine do not count.
double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Work>
double best_of(int passes, const Work& work) {
  double best = 1e9;
  for (int i = 0; i < passes; ++i) {
    const double begin = thread_seconds();
    work();
    best = std::min(best, thread_seconds() - begin);
  }
  return best;
}

std::vector<float> random_floats(std::size_t n) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> distribution(-1.0f, 1.0f);
  std::vector<float> values(n);
  for (float& value : values) value = distribution(random);
  return values;
}

// Codes do not matter for speed; scales and biases must be small numbers.
void fill_stripes(std::byte* to, std::size_t n_stripes) {
  std::mt19937 random(2);
  for (std::size_t i = 0; i < n_stripes * kGroups; ++i, to += kBlock4Bytes) {
    for (int j = 0; j < kBlock4Codes; j += 4) {
      const auto word = static_cast<std::uint32_t>(random());
      std::memcpy(to + j, &word, 4);
    }
    std::memset(to + kBlock4Codes, 0x3c, 4 * kLanes);
  }
}

struct Rows {
  Rows(const Kernels& kernels, int n, int planes)
      : codes(static_cast<std::size_t>(n * kGroups * planes * kGroupSize)),
        scales(static_cast<std::size_t>(n * kGroups)),
        sums(scales.size()) {
    const auto x = random_floats(static_cast<std::size_t>(n * kGroups * kGroupSize));
    for (int r = 0; r < n; ++r)
      kernels.quantize(x.data() + r * kGroups * kGroupSize, kGroups, planes, codes.data() + r * planes * kGroupSize,
                       scales.data() + r, sums.data() + r, n);
    panel = {codes.data(), scales.data(), sums.data(), n};
  }
  std::vector<std::int8_t> codes;
  std::vector<float> scales, sums;
  Panel panel;
};

void one_row_over_memory(const Kernels& kernels, ThreadPool& pool, double bandwidth) {
  const std::size_t per_thread = (std::size_t{256} << 20) / kStripeBytes;
  auto memory =
      AlignedMemory::allocate(per_thread * kStripeBytes * static_cast<std::size_t>(pool.size()) + 65536, "weights");
  LILY_CHECK(memory);
  pool.run([&](int t) {
    fill_stripes(memory->data() + static_cast<std::size_t>(t) * per_thread * kStripeBytes, per_thread);
  });
  for (int planes : {2, 1}) {
    const Rows rows(kernels, 1, planes);
    double best = 0;
    for (int pass = 0; pass < 5; ++pass) {
      const auto begin = std::chrono::steady_clock::now();
      pool.run([&](int t) {
        const std::byte* stripe = memory->data() + static_cast<std::size_t>(t) * per_thread * kStripeBytes;
        float y[kLanes];
        for (std::size_t i = 0; i < per_thread; ++i)
          kernels.gemm4(stripe + i * kStripeBytes, kGroups, rows.panel, planes, y, kLanes);
      });
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      best = std::max(best, static_cast<double>(per_thread * kStripeBytes) * pool.size() / seconds.count());
    }
    std::printf("  %-8s 1 row, int%-2d       %7.2f GB/s  (%.0f %% of read bandwidth)\n", kernels.name.data(),
                8 * planes, best / 1e9, 100 * best / bandwidth);
  }
}

void rows_over_cache(const Kernels& kernels) {
  constexpr std::size_t kStripes = 8;
  auto memory = AlignedMemory::allocate(kStripes * kStripeBytes + 65536, "weights");
  LILY_CHECK(memory);
  fill_stripes(memory->data(), kStripes);
  std::vector<float> y(kMaxPanelRows * kLanes);
  for (int planes : {2, 1})
    for (int n : {1, 2, 4, 8, 12, 16}) {
      if (n > kernels.panel_rows) break;
      const Rows rows(kernels, n, planes);
      const double seconds = best_of(20, [&] {
        for (std::size_t i = 0; i < kStripes; ++i)
          kernels.gemm4(memory->data() + i * kStripeBytes, kGroups, rows.panel, planes, y.data(), kLanes);
      });
      const double macs = static_cast<double>(kStripes) * kLanes * kGroups * kGroupSize * n;
      std::printf("  %-8s %2d rows, int%-2d      %7.1f GMAC/s a thread  (%.2f GB/s of weights)\n", kernels.name.data(),
                  n, 8 * planes, macs / seconds / 1e9, kStripes * kStripeBytes / seconds / 1e9);
    }
}

void mixers(const Kernels& kernels) {
  constexpr int kTokens = 64;
  const auto x = random_floats(kTokens * 128);
  const std::vector<float> ones(kTokens, 0.5f);
  std::vector<float> memory(128 * 32), out(kTokens * 128);
  const double delta = best_of(20, [&] {
    kernels.gdn_scan({memory.data(), x.data(), x.data(), x.data(), ones.data(), ones.data(), out.data(), kTokens});
  });
  std::printf("  %-8s delta rule         %7.3f us a token and head\n", kernels.name.data(), 4 * delta / kTokens * 1e6);

  std::vector<std::uint16_t> kv(2 * 64 * 256, 0x3c00);
  for (int rows : {8, 64}) {
    const auto q = random_floats(static_cast<std::size_t>(rows) * 256);
    std::vector<int> visible(static_cast<std::size_t>(rows), 64);
    std::vector<float> maximum(visible.size(), -1e30f), total(visible.size()), o(visible.size() * 256);
    const double block = best_of(20, [&] {
      kernels.attend_block(
          {kv.data(), kv.data() + 64 * 256, q.data(), visible.data(), maximum.data(), total.data(), o.data(), rows});
    });
    std::printf("  %-8s attention, %2d rows %7.1f GMAC/s a thread\n", kernels.name.data(), rows,
                2.0 * rows * 64 * 256 / block / 1e9);
  }
}

int run(int n_threads) {
  ThreadPool pool(n_threads);
  const double bandwidth = measure_read_bandwidth(n_threads).value_or(0);
  std::printf("%d threads, read bandwidth %.2f GB/s\n", pool.size(), bandwidth / 1e9);
  for (const Kernels* table : runnable_kernels()) {
    if (table->name == "generic") continue;
    one_row_over_memory(*table, pool, bandwidth);
    rows_over_cache(*table);
    mixers(*table);
  }
  return 0;
}

}  // namespace
}  // namespace lily::cpu

int main(int argc, char** argv) {
  return lily::cpu::run(argc > 1 ? std::atoi(argv[1]) : 0);
}
