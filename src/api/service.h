// The API as an Application of the HTTP server: routes, access, health, models, chat completions.
//   network thread -> screen() -> handle() -> a lane (JSON, template, tokens) -> engine -> ChatRun -> answer
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/call.h"
#include "api/chat_run.h"
#include "api/lane.h"
#include "net/access.h"
#include "net/http_server.h"

namespace lily::api {

struct ServiceOptions {
  net::AccessPolicy access;
  bool strict = false;  // refuse unknown fields
};

class Service final : public net::Application {
 public:
  explicit Service(ServiceOptions options);

  // Until this is called, /health answers 503 "loading". Once.
  void serve(ServedModel model);
  void set_loading_progress(double fraction) { progress_.store(fraction, std::memory_order_relaxed); }
  void set_draining() { draining_.store(true, std::memory_order_relaxed); }  // new chat requests get 503

  std::optional<net::Response> screen(const net::RequestHead& head) override;
  void handle(net::Request request, std::shared_ptr<net::Exchange> exchange) override;
  net::Response refusal(int status, std::string_view message, const net::RequestHead* head) override;

 private:
  std::optional<net::Response> screen_route(const net::RequestHead& head) const;
  net::Response health() const;
  net::Response models() const;
  net::Response model(std::string_view id) const;
  std::optional<ApiError> not_serving() const;
  void start_chat(std::shared_ptr<Call> call, std::string body);
  void run_chat(const std::shared_ptr<Call>& call, const std::string& body) const;
  Parsed<void> submit_chat(const std::shared_ptr<Call>& call, const std::string& body) const;

  const net::Access access_;
  const bool strict_;
  std::shared_ptr<const ServedModel> owned_model_;  // set once, before model_
  std::atomic<const ServedModel*> model_{nullptr};
  std::atomic<double> progress_{0};
  std::atomic<bool> draining_{false};
  Lane small_;  // bodies that are read and tokenized in a moment
  Lane large_;  // the others, so that they delay only each other
};

}  // namespace lily::api
