#include "apps/bench_http.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "api/service.h"
#include "net/http_server.h"
#include "text/chat_template.h"

namespace lily::apps {
namespace {

constexpr std::int64_t kTemplateTokens = 16;  // about what the template adds to a user's message

class Socket {
 public:
  Socket() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

Error socket_error(const char* what) {
  return Error{ErrorCode::Io, fmt::format("the bench's own server: {}: {}", what, std::strerror(errno))};
}

// The answer's body. Every request has a connection of its own, which the server closes behind the answer.
Result<std::string> post(int port, const std::string& body) {
  const Socket connection;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(connection.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return tl::unexpected<Error>(socket_error("connect"));
  }
  const std::string request = fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      body.size(), body);
  for (std::size_t sent = 0; sent < request.size();) {
    const ssize_t n = send(connection.fd(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (n < 0) return tl::unexpected<Error>(socket_error("send"));
    sent += static_cast<std::size_t>(n);
  }
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = recv(connection.fd(), buffer, sizeof buffer, 0)) != 0;) {
    if (n < 0) return tl::unexpected<Error>(socket_error("recv"));
    answer.append(buffer, static_cast<std::size_t>(n));
  }
  const std::size_t head_end = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.1 200 ") || head_end == std::string::npos) {
    return fail(ErrorCode::Internal, "the bench's own server answered: {}", answer);
  }
  return answer.substr(head_end + 4);
}

// A digit is a token of its own in every tokenizer that the checkpoint check lets through.
std::string request_body(std::int64_t tokens) {
  std::string digits;
  for (const TokenId id : random_tokens(static_cast<std::size_t>(tokens), 10, 0)) {
    digits += static_cast<char>('0' + id);
  }
  return json::dump(
      json::Object{{"max_tokens", 1}, {"messages", json::Array{json::Object{{"role", "user"}, {"content", digits}}}}});
}

}  // namespace

Result<PrefillRow> measure_http_first_token(Engine& engine, const BenchModel& model, const SpeedPlan& plan,
                                            std::int64_t tokens) {
  LILY_TRY(const ChatTemplate chat_template, ChatTemplate::load(model.checkpoint->texts().chat_template));
  api::Service service({.access = {.loopback = true}});  // outlives the server
  LILY_TRY(const auto server, net::HttpServer::bind("127.0.0.1", 0, net::Limits{}));
  service.serve({.id = model.checkpoint->id(),
                 .tokenizer = &model.tokenizer,
                 .chat_template = &chat_template,
                 .engine = &engine,
                 .stop_ids = model.checkpoint->stop_ids()});
  server->start(service);
  const std::string body = request_body(std::max<std::int64_t>(1, tokens - kTemplateTokens));
  PrefillRow row;
  std::vector<double> seconds;
  for (int i = 0; i <= plan.repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    LILY_TRY(const std::string answer, post(server->port(), body));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (i > 0) seconds.push_back(elapsed.count());
    LILY_TRY(const json::Value completion, json::parse(answer));
    row.tokens = completion.at("usage").at("prompt_tokens").to_number<std::int64_t>();
    plan.on_run();
  }
  row.seconds = spread_of(std::move(seconds));
  return row;
}

}  // namespace lily::apps
