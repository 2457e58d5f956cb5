// How many prompt tokens a step may take while answers stream: halved when a step took longer than the target,
// doubled when it took less than half of it. Affects pace alone: backends are independent of chunking.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lily {

class ChunkPacer {
 public:
  static constexpr std::int64_t kFirst = 128;
  static constexpr std::int64_t kLeast = 32;  // below, a pass over the experts' weights serves too few tokens

  ChunkPacer(double target_seconds, std::int64_t most) : target_seconds_(target_seconds), most_(most) {}

  std::int64_t chunk() const { return std::min(chunk_, most_); }

  // A step with streams took `seconds` for `n_tokens` of prompt work. A chunk that was cut short says nothing of
  // how long a full one takes, except when it was too long already.
  void observe(std::int64_t n_tokens, double seconds) {
    if (seconds > target_seconds_) {
      chunk_ = std::max(kLeast, chunk_ / 2);
    } else if (n_tokens >= chunk() && seconds < target_seconds_ / 2) {
      chunk_ = std::min(most_, chunk_ * 2);
    }
  }

 private:
  double target_seconds_;
  std::int64_t most_;
  std::int64_t chunk_ = kFirst;
};

}  // namespace lily
