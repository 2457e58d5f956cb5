// Workers wait on an epoch that each run() advances. Waiting is a bounded spin, then a futex sleep (std::atomic::wait),
// so that an idle program costs nothing and a busy one wakes in nanoseconds.
#include "base/thread_pool.h"

#include <atomic>
#include <thread>
#include <vector>

#include "base/aligned.h"
#include "base/check.h"
#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lily {

namespace {

inline void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// About 20 us on current cores: longer than any phase's imbalance, shorter than anybody notices in idle power.
constexpr int kSpins = 1000;

// Returns once `value` differs from `old`.
void wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_briefly();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::Impl {
  // Each on its own cache line: arrivals are hammered by everybody, the epochs are read by everybody.
  alignas(kCacheLine) std::atomic<std::uint32_t> epoch{0};  // of run()
  alignas(kCacheLine) std::atomic<std::uint32_t> phase{0};  // of barrier()
  alignas(kCacheLine) std::atomic<int> arrived{0};          // at the barrier
  alignas(kCacheLine) const std::function<void(int)>* body = nullptr;
  bool stop = false;
  int size = 1;
  int spins = kSpins;
  std::vector<std::thread> workers;

  void barrier(const std::function<void()>* once) {
    if (size == 1) {
      if (once != nullptr) (*once)();
      return;
    }
    const std::uint32_t now = phase.load(std::memory_order_acquire);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
      if (once != nullptr) (*once)();
      arrived.store(0, std::memory_order_relaxed);
      phase.store(now + 1, std::memory_order_release);
      phase.notify_all();
    } else {
      wait_for_change(phase, now, spins);
    }
  }

  void work(int thread) {
    for (std::uint32_t seen = 0;;) {
      wait_for_change(epoch, seen, spins);
      seen = epoch.load(std::memory_order_acquire);
      if (stop) return;
      (*body)(thread);
      barrier(nullptr);
    }
  }
};

ThreadPool::ThreadPool(int n_threads) : impl_(std::make_unique<Impl>()) {
  LILY_CHECK(n_threads >= 0);
  const int cores = usable_cores();
  impl_->size = n_threads == 0 ? cores : n_threads;
  // With more threads than cores a spinning waiter only keeps the one it waits for from running.
  if (impl_->size > cores) impl_->spins = 0;
  for (int t = 1; t < impl_->size; ++t) impl_->workers.emplace_back([impl = impl_.get(), t] { impl->work(t); });
}

ThreadPool::~ThreadPool() {
  impl_->stop = true;
  impl_->epoch.fetch_add(1, std::memory_order_release);
  impl_->epoch.notify_all();
  for (std::thread& worker : impl_->workers) worker.join();
}

int ThreadPool::size() const {
  return impl_->size;
}

void ThreadPool::run(const std::function<void(int)>& body) {
  impl_->body = &body;
  impl_->epoch.fetch_add(1, std::memory_order_release);
  impl_->epoch.notify_all();
  body(0);
  impl_->barrier(nullptr);
}

void ThreadPool::barrier() {
  impl_->barrier(nullptr);
}

void ThreadPool::barrier(const std::function<void()>& once) {
  impl_->barrier(&once);
}

}  // namespace lily
