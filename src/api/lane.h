// One thread that does jobs in order, with a bounded queue: what is too slow for the network's thread (reading and
// tokenizing a request body) is done here.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace lily::api {

class Lane {
 public:
  explicit Lane(std::size_t most_queued);
  ~Lane();  // finishes the running job, drops the others
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // False: the queue is full. A job that throws is logged.
  bool post(std::function<void()> job);

 private:
  void work();

  const std::size_t most_queued_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lily::api
