// Stand-ins on both sides of the service: an engine that says what the test wants, an exchange that keeps the answer.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "api/service.h"
#include "base/check.h"
#include "base/json.h"
#include "engine/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lily::api::test {

inline std::string read_file(const std::string& path) {
  std::ifstream file(std::filesystem::path(LILY_SOURCE_DIR) / path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

inline const Tokenizer& tiny_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(read_file("models/lily-tiny/tokenizer.json")).value();
  return tokenizer;
}

inline const ChatTemplate& tiny_template() {
  static const ChatTemplate chat_template =
      ChatTemplate::load(read_file("models/lily-tiny/chat_template.jinja")).value();
  return chat_template;
}

// Answers every request with `answer`, within submit(); with `hold`, keeps it until finish() or cancel().
class FakeEngine final : public Engine {
 public:
  std::string answer = "Hello!";
  FinishReason reason = FinishReason::Stop;
  std::optional<Error> refuse;  // by submit()
  std::optional<Error> error;   // with FinishReason::Error
  std::int64_t cached = 0;
  bool hold = false;
  bool healthy = true;

  FakeEngine() { options_.max_seq = 512; }

  Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) override {
    if (refuse) return tl::unexpected(*refuse);
    std::unique_lock lock(mutex_);
    last_ = std::move(request);
    const RequestId id = ++n_submitted_;
    if (hold) {
      held_[id] = std::move(sink);
      changed_.notify_all();
      return id;
    }
    lock.unlock();
    std::vector<TokenId> ids;
    tiny_tokenizer().encode(answer, ids);
    for (const TokenId token : ids) sink->on_token(token);
    finish_sink(*sink, reason, static_cast<std::int64_t>(ids.size()));
    return id;
  }

  void cancel(RequestId id) override {
    std::shared_ptr<EventSink> sink;
    {
      const std::lock_guard lock(mutex_);
      ++n_cancelled_;
      changed_.notify_all();
      if (const auto found = held_.find(id); found != held_.end()) {
        sink = std::move(found->second);
        held_.erase(found);
      }
    }
    if (sink) std::thread([this, sink] { finish_sink(*sink, FinishReason::Cancelled, 0); }).join();
  }

  void shutdown(double) override {}
  EngineStats stats() const override {
    EngineStats stats;
    stats.healthy = healthy;
    return stats;
  }
  const EngineOptions& options() const override { return options_; }
  const Backend& backend() const override {
    LILY_CHECK(!"the service knows no backend");
    std::abort();
  }

  const Request& last() const { return last_; }
  int n_cancelled() {
    const std::lock_guard lock(mutex_);
    return n_cancelled_;
  }
  bool wait_cancelled(int n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return n_cancelled_ >= n; });
  }
  bool wait_held() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return !held_.empty(); });
  }

 private:
  void finish_sink(EventSink& sink, FinishReason why, std::int64_t n_tokens) {
    Finish finish;
    finish.reason = why;
    finish.error = error;
    finish.usage.prompt_tokens = static_cast<std::int64_t>(last_.prompt.size());
    finish.usage.cached_tokens = cached;
    finish.usage.completion_tokens = n_tokens;
    sink.on_finish(finish);
  }

  EngineOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::shared_ptr<EventSink>> held_;
  Request last_;
  RequestId n_submitted_ = 0;
  int n_cancelled_ = 0;
};

class FakeExchange final : public net::Exchange {
 public:
  void respond(net::Response response) override {
    const std::lock_guard lock(mutex_);
    if (!response_) response_ = std::move(response);
    changed_.notify_all();
  }
  void on_disconnect(std::function<void()> callback) override {
    const std::lock_guard lock(mutex_);
    callbacks_.push_back(std::move(callback));
  }
  void disconnect() {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      callbacks.swap(callbacks_);
    }
    for (auto& callback : callbacks) callback();
  }
  net::Response wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [this] { return response_.has_value(); }));
    return response_.value_or(net::Response{.status = 0, .headers = {}, .body = {}});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<net::Response> response_;
  std::vector<std::function<void()>> callbacks_;
};

inline std::string header(const net::Response& response, std::string_view name) {
  for (const net::Header& h : response.headers) {
    if (net::equals_ignoring_case(h.name, name)) return h.value;
  }
  return {};
}

inline net::RequestHead head(std::string method, std::string target, std::vector<net::Header> headers = {}) {
  headers.push_back({"Host", "localhost"});
  net::RequestHead made;
  made.method = std::move(method);
  made.target = std::move(target);
  made.headers = std::move(headers);
  return made;
}

// A service over a fake engine and the tiny model's tokenizer and template.
struct TestService {
  explicit TestService(ServiceOptions options = {}, bool ready = true) : service(std::move(options)) {
    if (ready) become_ready();
  }

  void become_ready() {
    ServedModel served;
    served.id = "lily-tiny";
    served.tokenizer = &tiny_tokenizer();
    served.chat_template = &tiny_template();
    served.engine = &engine;
    served.stop_ids = {1969, 1967};
    served.fingerprint = "lily-test";
    service.serve(std::move(served));
  }

  // What the server does with a request: screen, then handle.
  net::Response ask(net::RequestHead request_head, std::string body = {}) {
    if (auto early = service.screen(request_head)) return std::move(*early);
    const auto exchange = std::make_shared<FakeExchange>();
    service.handle({std::move(request_head), std::move(body)}, exchange);
    return exchange->wait();
  }
  net::Response chat(std::string body, std::vector<net::Header> headers = {}) {
    return ask(head("POST", "/v1/chat/completions", std::move(headers)), std::move(body));
  }

  FakeEngine engine;
  Service service;
};

inline json::Value parse_body(const net::Response& response) {
  auto value = json::parse(response.body);
  EXPECT_TRUE(value) << response.body;
  return value ? *value : json::Value(json::Object{});
}

inline std::string error_field(const net::Response& response, std::string_view name) {
  const json::Value body = parse_body(response);
  const json::Value* error = body.as_object().if_contains("error");
  if (!error) return "(no error)";
  const json::Value& value = error->as_object().at(name);
  return value.is_string() ? std::string(value.get_string()) : "null";
}

}  // namespace lily::api::test
