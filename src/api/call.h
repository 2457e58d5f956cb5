// One HTTP request on its way to its answer: who asked, under which id, and the single place where answers are dressed
// and logged. Holds nothing of the service, so an answer may come after the service has gone.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "net/http_server.h"

namespace lily::api {

// The client's x-request-id if it is a plain word, else a new one.
std::string request_id(const net::RequestHead& head);

// "<prefix><16 random hex digits>"
std::string unique_id(std::string_view prefix);

class Call {
 public:
  // `label` names the route in the log: what the client sent is not written there.
  Call(const net::RequestHead& head, std::string label, std::vector<net::Header> cors,
       std::shared_ptr<net::Exchange> exchange);

  const std::string& id() const { return id_; }
  net::Exchange& exchange() { return *exchange_; }
  void watch_client();  // from now on, client_gone() knows
  bool client_gone() const { return gone_->load(std::memory_order_relaxed); }

  // Adds the request id and CORS headers, writes one log line, answers. `note` is added to the log line.
  void finish(net::Response response, std::string_view note = {});

 private:
  std::string id_;
  std::string label_;
  std::vector<net::Header> cors_;
  std::shared_ptr<net::Exchange> exchange_;
  std::shared_ptr<std::atomic<bool>> gone_ = std::make_shared<std::atomic<bool>>(false);
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The log line of an answer.
void log_answer(std::string_view label, int status, std::chrono::steady_clock::duration elapsed, std::string_view id,
                std::string_view note);

}  // namespace lily::api
