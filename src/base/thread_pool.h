// A fixed team of threads that runs one function at a time on all of its members. Made for steps of a few
// microseconds: workers spin briefly before they sleep.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace lily {

class ThreadPool {
 public:
  // n_threads >= 1, the caller included; 0: every core that this process may use.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;
  // Calls body(thread) once for every thread in [0, size()) and returns when all are done. Not reentrant.
  void run(const std::function<void(int)>& body);
  // Inside run(): waits until all threads of the team have arrived.
  void barrier();
  // The same; the last to arrive calls `once` before anybody goes on. Two barriers and a lonely thread in one.
  void barrier(const std::function<void()>& once);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lily
