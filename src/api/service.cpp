#include "api/service.h"

#include <algorithm>
#include <array>
#include <utility>

#include "api/chat_request.h"
#include "api/errors.h"

namespace lily::api {
namespace {

constexpr std::size_t kSmallBody = net::Limits{}.small_body_bytes;
constexpr std::size_t kSmallQueue = 256;
constexpr std::size_t kLargeQueue = 16;

enum class Route : std::uint8_t { None, Health, Models, Model, Chat };

constexpr std::string_view kModelPrefix = "/v1/models/";

Route route_of(std::string_view path) {
  if (path == "/health") return Route::Health;
  if (path == "/v1/models") return Route::Models;
  if (path == "/v1/chat/completions") return Route::Chat;
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) return Route::Model;
  return Route::None;
}

std::string_view allowed_methods(Route route) {
  return route == Route::Chat ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

bool known_method(std::string_view method) {
  constexpr std::array<std::string_view, 9> kMethods{"GET",    "HEAD",    "POST",  "PUT",    "PATCH",
                                                     "DELETE", "OPTIONS", "TRACE", "CONNECT"};
  return std::find(kMethods.begin(), kMethods.end(), method) != kMethods.end();
}

bool allows(Route route, std::string_view method) {
  if (method == "OPTIONS") return true;
  return route == Route::Chat ? method == "POST" : method == "GET" || method == "HEAD";
}

// For the log: what was asked in words of the program's own.
std::string label(const net::RequestHead& head) {
  constexpr std::array<std::string_view, 5> kNames{"(unknown path)", "/health", "/v1/models", "/v1/models/{id}",
                                                   "/v1/chat/completions"};
  return fmt::format("{} {}", known_method(head.method) ? head.method : "(unknown method)",
                     kNames[static_cast<std::size_t>(route_of(head.path()))]);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(16 * hex_digit(text[i + 1]) + hex_digit(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

json::Object model_entry(const ServedModel& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "lily"},
          {"max_model_len", model.engine->options().max_seq}};
}

}  // namespace

Service::Service(ServiceOptions options)
    : access_(std::move(options.access)), strict_(options.strict), small_(kSmallQueue), large_(kLargeQueue) {}

void Service::serve(ServedModel model) {
  owned_model_ = std::make_shared<const ServedModel>(std::move(model));
  model_.store(owned_model_.get(), std::memory_order_release);
}

std::optional<net::Response> Service::screen(const net::RequestHead& head) {
  std::optional<net::Response> early;
  const bool open = head.path() == "/health" || head.method == "OPTIONS";  // a preflight cannot carry a key
  if (const auto denial = access_.check(head, open))
    early = error_response({denial->status, denial->code, "", denial->message});
  else
    early = screen_route(head);
  if (!early) return std::nullopt;
  const std::string id = request_id(head);
  early->headers.push_back({"X-Request-Id", id});
  access_.add_cors(head, head.method == "OPTIONS", early->headers);
  log_answer(label(head), early->status, {}, id, "");
  return early;
}

std::optional<net::Response> Service::screen_route(const net::RequestHead& head) const {
  const std::string& method = head.method;
  if (!known_method(method))
    return error_response({501, "unknown_method", "", fmt::format("unknown method {}", quote(method, 64))});
  const Route route = route_of(head.path());
  if (method == "OPTIONS" && head.target == "*")
    return net::Response{.status = 204, .headers = {{"Allow", "GET, HEAD, POST, OPTIONS"}}, .body = {}};
  if (route == Route::None) {
    return error_response({404, "not_found", "",
                           "no such path; this server has POST /v1/chat/completions, GET /v1/models and GET /health"});
  }
  if (method == "OPTIONS")
    return net::Response{.status = 204, .headers = {{"Allow", std::string(allowed_methods(route))}}, .body = {}};
  if (!allows(route, method)) {
    net::Response response = error_response(
        {405, "method_not_allowed", "", fmt::format("this path takes {}, not {}", allowed_methods(route), method)});
    response.headers.push_back({"Allow", std::string(allowed_methods(route))});
    return response;
  }
  for (const std::string_view coding : head.values("Content-Encoding")) {
    if (!net::equals_ignoring_case(coding, "identity"))
      return error_response({415, "unsupported_encoding", "", "send the body without Content-Encoding"});
  }
  if (route == Route::Chat) {
    if (const auto error = not_serving()) return error_response(*error);
  }
  return std::nullopt;
}

net::Response Service::refusal(int status, std::string_view message, const net::RequestHead* head) {
  net::Response response = error_response({status, "http_error", "", std::string(message)});
  const std::string id = head ? request_id(*head) : unique_id("req-");
  response.headers.push_back({"X-Request-Id", id});
  if (head) access_.add_cors(*head, false, response.headers);
  log_answer(head ? label(*head) : "(no request)", status, {}, id, "");
  return response;
}

void Service::handle(net::Request request, std::shared_ptr<net::Exchange> exchange) {
  const net::RequestHead& head = request.head;
  std::vector<net::Header> cors;
  access_.add_cors(head, false, cors);
  auto call = std::make_shared<Call>(head, label(head), std::move(cors), std::move(exchange));
  switch (route_of(head.path())) {
    case Route::Health:
      return call->finish(health());
    case Route::Models:
      return call->finish(models());
    case Route::Model:
      return call->finish(model(percent_decode(head.path().substr(kModelPrefix.size()))));
    default:
      return start_chat(std::move(call), std::move(request.body));
  }
}

std::optional<ApiError> Service::not_serving() const {
  if (draining_.load(std::memory_order_relaxed))
    return ApiError{503, "shutting_down", "", "the server is shutting down"};
  if (!model_.load(std::memory_order_acquire))
    return ApiError{503, "model_loading", "", "the model is still loading; try again in a moment"};
  return std::nullopt;
}

net::Response Service::health() const {
  if (draining_.load(std::memory_order_relaxed)) return json_response(503, json::Object{{"status", "shutting_down"}});
  const ServedModel* served = model_.load(std::memory_order_acquire);
  if (!served) {
    return json_response(503,
                         json::Object{{"status", "loading"}, {"progress", progress_.load(std::memory_order_relaxed)}});
  }
  const EngineStats stats = served->engine->stats();
  const json::Object body{{"status", stats.healthy ? "ok" : "error"},
                          {"model", served->id},
                          {"active", stats.active},
                          {"queued", stats.queued}};
  return json_response(stats.healthy ? 200 : 503, body);
}

net::Response Service::models() const {
  const ServedModel* served = model_.load(std::memory_order_acquire);
  if (!served) return error_response({503, "model_loading", "", "the model is still loading; try again in a moment"});
  return json_response(200, json::Object{{"object", "list"}, {"data", json::Array{model_entry(*served)}}});
}

net::Response Service::model(std::string_view id) const {
  const ServedModel* served = model_.load(std::memory_order_acquire);
  if (!served) return error_response({503, "model_loading", "", "the model is still loading; try again in a moment"});
  if (!serves_model({served->id, strict_}, id)) {
    return error_response(
        {404, "model_not_found", "model", fmt::format("this server has one model, {}", quote(served->id, 64))});
  }
  return json_response(200, model_entry(*served));
}

void Service::start_chat(std::shared_ptr<Call> call, std::string body) {
  call->watch_client();
  Lane& lane = body.size() <= kSmallBody ? small_ : large_;
  const bool posted =
      lane.post([this, call, text = std::make_shared<const std::string>(std::move(body))] { run_chat(call, *text); });
  if (!posted)
    call->finish(error_response({429, "queue_full", "", "too many requests are waiting to be read; try again"}));
}

void Service::run_chat(const std::shared_ptr<Call>& call, const std::string& body) const {
  if (auto submitted = submit_chat(call, body); !submitted) call->finish(error_response(submitted.error()));
}

// From the body's bytes to a request that the engine has taken.
Parsed<void> Service::submit_chat(const std::shared_ptr<Call>& call, const std::string& body) const {
  const ApiError gone{503, "cancelled", "", "the client has gone"};
  if (call->client_gone()) return tl::unexpected(gone);
  const ServedModel& served = *model_.load(std::memory_order_acquire);
  const auto value = json::parse(body);
  if (!value) {
    return tl::unexpected(ApiError{400, "invalid_json", "",
                                   fmt::format("the request body is not valid JSON: {}", value.error().message)});
  }
  API_TRY(const ChatRequest chat, parse_chat_request(*value, {served.id, strict_}));
  const ChatOptions options{
      .enable_thinking = chat.thinking, .preserve_thinking = chat.preserve_thinking, .strict = strict_};
  const auto rendered = served.chat_template->render(chat.messages, chat.tools, options);
  if (!rendered) return bad_field("messages", "{}", rendered.error().message);
  EncodedPrompt prompt = encode(*rendered, *served.tokenizer);
  if (call->client_gone()) return tl::unexpected(gone);
  const std::int64_t max_seq = served.engine->options().max_seq;
  const auto n_prompt = static_cast<std::int64_t>(prompt.tokens.size());
  if (n_prompt + 1 > max_seq) {
    return tl::unexpected(ApiError{
        400, "context_length_exceeded", "messages",
        fmt::format(
            "the prompt is {} tokens, and this server's maximum context length is {} tokens, of which an answer "
            "needs at least one; shorten the messages or serve with a larger --max-seq",
            n_prompt, max_seq)});
  }
  Request request;
  request.prompt = std::move(prompt.tokens);
  request.boundaries = std::move(prompt.boundaries);
  request.max_tokens = chat.max_tokens < 0 ? -1 : std::min(chat.max_tokens, max_seq - n_prompt);
  request.stop_ids = served.stop_ids;
  request.cache_key = chat.cache_key;
  request.use_cache = chat.use_cache;
  const auto run = std::make_shared<ChatRun>(owned_model_, chat, call);
  const auto id = served.engine->submit(std::move(request), run);
  if (!id) {
    ApiError error = to_api_error(id.error());
    const bool may_retry = !draining_.load(std::memory_order_relaxed) && served.engine->stats().healthy;
    if (id.error().code == ErrorCode::Unavailable && may_retry) error = {429, "queue_full", "", id.error().message};
    return tl::unexpected(std::move(error));
  }
  run->submitted(*id);
  call->exchange().on_disconnect([run] { run->cancel(); });
  return {};
}

}  // namespace lily::api
