#include "api/call.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/log.h"

namespace lily::api {

std::string unique_id(std::string_view prefix) {
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return fmt::format("{}{:016x}", prefix, random());
}

std::string request_id(const net::RequestHead& head) {
  constexpr std::size_t kLongest = 64;
  const auto given = head.values("x-request-id");
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           c == '.';
  };
  if (given.size() == 1 && !given[0].empty() && given[0].size() <= kLongest &&
      std::all_of(given[0].begin(), given[0].end(), plain))
    return std::string(given[0]);
  return unique_id("req-");
}

Call::Call(const net::RequestHead& head, std::string label, std::vector<net::Header> cors,
           std::shared_ptr<net::Exchange> exchange)
    : id_(request_id(head)), label_(std::move(label)), cors_(std::move(cors)), exchange_(std::move(exchange)) {}

void Call::watch_client() {
  exchange_->on_disconnect([gone = gone_] { gone->store(true, std::memory_order_relaxed); });
}

void Call::finish(net::Response response, std::string_view note) {
  response.headers.push_back({"X-Request-Id", id_});
  response.headers.insert(response.headers.end(), cors_.begin(), cors_.end());
  log_answer(label_, response.status, std::chrono::steady_clock::now() - start_, id_,
             client_gone() ? "client gone" : note);
  exchange_->respond(std::move(response));
}

void log_answer(std::string_view label, int status, std::chrono::steady_clock::duration elapsed, std::string_view id,
                std::string_view note) {
  const double ms = std::chrono::duration<double, std::milli>(elapsed).count();
  log::info("{} {} {:.1f} ms {}{}{}", label, status, ms, id, note.empty() ? "" : " ", note);
}

}  // namespace lily::api
