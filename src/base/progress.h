// Progress of a long job on standard error: a bar that redraws itself on a terminal, an occasional line elsewhere.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace lily {

class Progress {
 public:
  enum class Unit : std::uint8_t { Bytes, Items };

  // Draws nothing before the first update that is late enough to be worth a look.
  Progress(std::string label, std::uint64_t total, Unit unit = Unit::Bytes);
  ~Progress();  // finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set(std::uint64_t done);  // any thread
  void add(std::uint64_t more);  // any thread
  void finish();                 // clears the bar; a job that had printed lines gets a last one

 private:
  using Clock = std::chrono::steady_clock;
  void draw();
  std::string text(std::uint64_t done, double seconds) const;

  const std::string label_;
  const std::uint64_t total_;
  const Unit unit_;
  const bool terminal_;
  const Clock::time_point start_;
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::int64_t> next_draw_ms_;
  std::mutex mutex_;
  bool drawn_ = false;
  bool finished_ = false;
};

}  // namespace lily
