#include "api/lane.h"

#include <exception>
#include <utility>

#include "base/log.h"

namespace lily::api {

Lane::Lane(std::size_t most_queued) : most_queued_(most_queued), thread_([this] { work(); }) {}

Lane::~Lane() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool Lane::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || jobs_.size() >= most_queued_) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

void Lane::work() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    try {
      job();
    } catch (const std::exception& e) {  // bad_alloc on a large body, say
      log::error("a request failed: {}", e.what());
    }
  }
}

}  // namespace lily::api
