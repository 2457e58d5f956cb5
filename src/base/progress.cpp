// Drawing is rate-limited and skipped by a thread that would have to wait for another one's drawing.
#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/quote.h"

namespace lily {
namespace {

constexpr std::int64_t kFirstDrawMs = 300;  // shorter jobs stay silent on a terminal
constexpr std::int64_t kTerminalPeriodMs = 100;
constexpr std::int64_t kLinePeriodMs = 10'000;  // in a log
constexpr int kBarWidth = 30;

}  // namespace

Progress::Progress(std::string label, std::uint64_t total, Unit unit)
    : label_(std::move(label)),
      total_(total),
      unit_(unit),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      next_draw_ms_(terminal_ ? kFirstDrawMs : kLinePeriodMs) {}

Progress::~Progress() {
  finish();
}

void Progress::set(std::uint64_t done) {
  done_.store(done, std::memory_order_relaxed);
  draw();
}

void Progress::add(std::uint64_t more) {
  done_.fetch_add(more, std::memory_order_relaxed);
  draw();
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  if (!drawn_) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (terminal_)
    std::fputs("\r\x1b[K", stderr);
  else
    fmt::print(stderr, "{}\n", text(done_.load(), seconds));
  std::fflush(stderr);
}

void Progress::draw() {
  const auto elapsed = Clock::now() - start_;
  const std::int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(elapsed).count();
  if (ms < next_draw_ms_.load(std::memory_order_relaxed)) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || finished_) return;
  next_draw_ms_.store(ms + (terminal_ ? kTerminalPeriodMs : kLinePeriodMs), std::memory_order_relaxed);
  drawn_ = true;
  const std::string line = text(done_.load(std::memory_order_relaxed), static_cast<double>(ms) / 1000);
  fmt::print(stderr, "{}{}{}", terminal_ ? "\r" : "", line, terminal_ ? "\x1b[K" : "\n");
  std::fflush(stderr);
}

std::string Progress::text(std::uint64_t done, double seconds) const {
  const double share = total_ == 0 ? 1 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string out = label_;
  if (terminal_) {
    const int filled = static_cast<int>(share * kBarWidth);
    out += fmt::format(" [{:#<{}}{: <{}}]", "", filled, "", kBarWidth - filled);
  }
  out += fmt::format(" {:3.0f} %", share * 100);
  if (unit_ == Unit::Bytes)
    out += fmt::format("  {} of {}, {}/s", human_bytes(done), human_bytes(total_),
                       human_bytes(static_cast<std::uint64_t>(rate)));
  else
    out += fmt::format("  {} of {}", with_commas(done), with_commas(total_));
  if (rate > 0 && done < total_) {
    const auto left = static_cast<std::int64_t>(static_cast<double>(total_ - done) / rate);
    out += fmt::format(", {}:{:02} left", left / 60, left % 60);
  }
  return out;
}

}  // namespace lily
