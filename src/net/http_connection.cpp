// One connection: read a head, let the application screen it, read the body, wait for the answer while watching the
// client, write, repeat. Beast parses; what Beast lets pass and HTTP does not is refused here.
//
// A request is in one of four phases, each with a deadline for the phase as a whole:
//   idle (idle_timeout) -> head (head_timeout) -> body (body_timeout) -> answering (none; the engine decides)
//   -> writing (write_timeout) -> idle or closed.
#include "net/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <ctime>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/version.h"

namespace lily::net {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kPipelineBytes = std::size_t{64} << 10;  // read ahead while a request is being answered
constexpr std::chrono::milliseconds kLinger{2000};
// Every answer begins with these bytes, so they can be sent before the answer is known: see watch_peer().
constexpr std::string_view kStatusPrefix = "HTTP/1.1 ";

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  const std::size_t n = std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text, n};
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  for (const char c : value) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) out.push_back(c);
  }
  out.append("\r\n");
}

std::string response_head(const Response& response, bool close) {
  std::string out(kStatusPrefix);
  out += fmt::format("{} {}\r\n", response.status,
                     std::string_view(http::obsolete_reason(static_cast<http::status>(response.status))));
  append_header(out, "Server", fmt::format("lily/{}", version()));
  append_header(out, "Date", http_date());
  for (const Header& header : response.headers) append_header(out, header.name, header.value);
  if (response.status != 204) append_header(out, "Content-Length", fmt::format("{}", response.body.size()));
  append_header(out, "Connection", close ? "close" : "keep-alive");
  return out += "\r\n";
}

struct Refusal {
  int status = 0;  // 0: nobody to answer
  std::string message;
};

bool looks_like_version(std::string_view input) {
  const std::string_view line = input.substr(0, input.find('\r'));
  const std::size_t at = line.rfind(" HTTP/");
  return at != line.npos && line.size() == at + 9 && std::isdigit(static_cast<unsigned char>(line[at + 6])) &&
         line[at + 7] == '.' && std::isdigit(static_cast<unsigned char>(line[at + 8]));
}

// What to tell the client about a failed read of head or body.
Refusal explain(const error_code& ec, std::string_view input) {
  if (ec == http::error::end_of_stream || ec == http::error::partial_message) return {};
  if (ec == http::error::header_limit || ec == http::error::buffer_overflow)
    return {431, "the request head is too large"};
  if (ec == http::error::body_limit) return {413, "the request body is too large"};
  if (ec == http::error::bad_version && looks_like_version(input))
    return {505, "this server speaks HTTP/1.1 and HTTP/1.0"};
  if (ec.category() == http::make_error_code(http::error::bad_method).category())
    return {400, fmt::format("malformed HTTP request: {}", ec.message())};
  return {};
}

// Framing that Beast lets pass: repeated or listed lengths, transfer codings it does not know, unknown expectations.
Refusal check_framing(const RequestHead& head) {
  const auto lengths = head.values("Content-Length");
  const auto codings = head.values("Transfer-Encoding");
  const auto digits = [](std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (lengths.size() > 1 || (lengths.size() == 1 && !digits(lengths[0])))
    return {400, "Content-Length must be one number"};
  if (!codings.empty()) {
    if (!lengths.empty()) return {400, "Content-Length and Transfer-Encoding exclude each other"};
    if (head.http_1_0) return {400, "HTTP/1.0 has no Transfer-Encoding"};
    if (codings.size() > 1 || !equals_ignoring_case(codings[0], "chunked"))
      return {501, "the only Transfer-Encoding understood is chunked"};
  }
  for (const std::string_view value : head.values("Expect")) {
    if (!equals_ignoring_case(value, "100-continue")) return {417, "the only expectation understood is 100-continue"};
  }
  return {};
}

RequestHead take_head(const http::request_parser<http::string_body>& parser) {
  const auto& message = parser.get();
  RequestHead head;
  head.method = message.method_string();
  head.target = message.target();
  head.http_1_0 = message.version() == 10;
  for (const auto& field : message) head.headers.push_back({field.name_string(), field.value()});
  return head;
}

// A large body's part of the budget for arriving bytes, held while it is being read.
class ArrivingBytes {
 public:
  ArrivingBytes(ServerCore& core, std::size_t bytes) : core_(core) {
    if (bytes <= core.limits.small_body_bytes) return;
    fits_ = core.arriving_bytes == 0 || core.arriving_bytes + bytes <= core.limits.arriving_bytes;
    if (fits_) core.arriving_bytes += bytes_ = bytes;
  }
  ~ArrivingBytes() { core_.arriving_bytes -= bytes_; }
  ArrivingBytes(const ArrivingBytes&) = delete;
  ArrivingBytes& operator=(const ArrivingBytes&) = delete;

  bool fits() const { return fits_; }

 private:
  ServerCore& core_;
  bool fits_ = true;
  std::size_t bytes_ = 0;
};

class HttpConnection;

class HttpExchange final : public Exchange {
 public:
  HttpExchange(std::shared_ptr<ServerCore> core, std::weak_ptr<HttpConnection> connection)
      : core_(std::move(core)), connection_(std::move(connection)) {}
  ~HttpExchange() override {
    if (!answered_) send({.status = 0, .headers = {}, .body = {}, .close = false});
  }

  void respond(Response response) override {
    std::vector<std::function<void()>> dropped;  // destroyed without the lock
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(answered_, true)) return;
      dropped.swap(callbacks_);
    }
    send(std::move(response));
  }

  void on_disconnect(std::function<void()> callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (answered_) return;
      if (!gone_) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }

  void peer_gone() {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      callbacks.swap(callbacks_);
    }
    for (auto& callback : callbacks) callback();
  }

 private:
  void send(Response response);

  std::shared_ptr<ServerCore> core_;
  std::weak_ptr<HttpConnection> connection_;
  std::mutex mutex_;
  bool answered_ = false;
  bool gone_ = false;
  std::vector<std::function<void()>> callbacks_;
};

class HttpConnection final : public Connection {
 public:
  HttpConnection(std::shared_ptr<ServerCore> core, tcp::socket socket)
      : core_(std::move(core)),
        socket_(std::move(socket)),
        deadline_(core_->io),
        answered_(core_->io),
        buffer_(core_->limits.head_bytes + kPipelineBytes) {}

  asio::awaitable<void> run(bool turn_away) override {
    const auto self = shared_from_this();
    try {
      if (turn_away) {
        Refusal refusal{503, "too many connections; try again later"};
        co_await refuse(std::move(refusal), nullptr);
      } else {
        while (co_await serve_one()) {
        }
      }
    } catch (const std::exception& e) {
      log::debug("connection ended: {}", e.what());
    }
    disarm();
    error_code ignored;
    socket_.close(ignored);
  }

  void begin_drain() override {
    if (idle_) cancel_io();
  }

  void cut() override {
    cut_ = true;
    error_code ignored;
    socket_.close(ignored);
    answered_.cancel();
  }

  void deliver(Response response) {
    response_ = std::move(response);
    answered_.cancel();
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  std::shared_ptr<HttpConnection> self() { return std::static_pointer_cast<HttpConnection>(shared_from_this()); }

  void cancel_io() {
    error_code ignored;
    socket_.cancel(ignored);
  }

  // One deadline at a time; when it passes, the running read or write is cancelled and timed_out_ says why.
  void arm(std::chrono::milliseconds limit) {
    timed_out_ = false;
    const std::uint64_t generation = ++deadline_generation_;
    deadline_.expires_after(limit);
    deadline_.async_wait([weak = std::weak_ptr(self()), generation](const error_code& ec) {
      const auto connection = weak.lock();
      if (ec || !connection || connection->deadline_generation_ != generation) return;
      connection->timed_out_ = true;
      connection->cancel_io();
    });
  }
  void disarm() {
    ++deadline_generation_;
    deadline_.cancel();
  }

  // One request and its answer. False: the connection is over.
  // Arguments of coroutines are named objects here and below: g++ 12 destroys aggregate temporaries in them twice.
  asio::awaitable<bool> serve_one() {
    if (!co_await wait_for_request()) co_return false;
    Parser parser;
    parser.header_limit(static_cast<std::uint32_t>(core_->limits.head_bytes));
    parser.body_limit(boost::none);  // the length is judged below, where the head can be answered
    arm(core_->limits.head_timeout);
    const auto [ec, n] = co_await http::async_read_header(socket_, buffer_, parser, kAwait);
    if (ec) {
      Refusal refusal = explain(ec, input());
      if (timed_out_) refusal = {408, "the request head took too long"};
      co_return co_await refuse(std::move(refusal), nullptr);
    }
    const RequestHead head = take_head(parser);
    keep_alive_ = parser.keep_alive() && !head.http_1_0;
    Refusal refusal = check_framing(head);
    if (refusal.status != 0) co_return co_await refuse(std::move(refusal), &head);
    if (std::optional<Response> early = core_->application->screen(head)) {
      early->close |= !parser.is_done();
      co_return co_await write(head, std::move(*early));
    }
    refusal = co_await read_body(head, parser);
    if (refusal.status != 0 || broken_) co_return co_await refuse(std::move(refusal), &head);
    Request request{head, std::move(parser.get().body())};
    std::optional<Response> response = co_await answer(std::move(request));
    if (!response) co_return false;
    if (response->status == 0) {
      refusal = {500, "the request was dropped without an answer; this is a defect of the server"};
      co_return co_await refuse(std::move(refusal), &head);
    }
    co_return co_await write(head, std::move(*response));
  }

  std::string_view input() const {
    const auto data = buffer_.data();
    return {static_cast<const char*>(data.data()), data.size()};
  }

  // Waits for the first byte of the next request.
  asio::awaitable<bool> wait_for_request() {
    if (buffer_.size() > 0) co_return true;
    if (core_->draining) co_return false;
    arm(core_->limits.idle_timeout);
    idle_ = true;
    const auto [ec, n] = co_await socket_.async_read_some(buffer_.prepare(4096), kAwait);
    idle_ = false;
    if (ec) co_return false;
    buffer_.commit(n);
    co_return true;
  }

  // Sets broken_ if the client has gone. Says 100 Continue where that is waited for.
  asio::awaitable<Refusal> read_body(const RequestHead& head, Parser& parser) {
    const std::size_t limit = core_->limits.body_bytes;
    if (parser.is_done()) co_return Refusal{};
    if (parser.content_length().value_or(0) > limit)
      co_return Refusal{413, fmt::format("the request body is larger than {} bytes", limit)};
    const ArrivingBytes share(*core_, parser.content_length().value_or(limit));
    if (!share.fits()) co_return Refusal{503, "too many large requests are arriving at once; try again later"};
    parser.body_limit(limit);
    arm(core_->limits.body_timeout);
    if (!head.http_1_0 && !head.values("Expect").empty()) {
      constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      if (auto [ec, n] = co_await asio::async_write(socket_, asio::buffer(kContinue), kAwait); ec) {
        broken_ = true;
        co_return Refusal{};
      }
    }
    auto [ec, n] = co_await http::async_read(socket_, buffer_, parser, kAwait);
    if (!ec) co_return Refusal{};
    if (timed_out_) co_return Refusal{408, "the request body took too long"};
    if (ec == http::error::body_limit)
      co_return Refusal{413, fmt::format("the request body is larger than {} bytes", limit)};
    Refusal refusal = explain(ec, {});
    broken_ = refusal.status == 0;
    co_return refusal;
  }

  // Hands the request over and waits; nothing if the client goes first.
  asio::awaitable<std::optional<Response>> answer(Request request) {
    using namespace asio::experimental::awaitable_operators;
    disarm();
    response_.reset();
    auto exchange = std::make_shared<HttpExchange>(core_, self());
    const std::weak_ptr<HttpExchange> waiting = exchange;
    try {
      core_->application->handle(std::move(request), std::move(exchange));
    } catch (const std::exception& e) {  // bad_alloc, say; the exchange is dropped, which answers
      log::error("a request could not be handled: {}", e.what());
    }
    co_await (wait_for_answer() || watch_peer());
    if (response_ && !cut_ && !broken_) co_return std::move(response_);
    if (const auto running = waiting.lock()) running->peer_gone();
    co_return std::nullopt;
  }

  asio::awaitable<void> wait_for_answer() {
    while (!response_ && !cut_) {
      answered_.expires_at(Clock::time_point::max());
      co_await answered_.async_wait(kAwait);
    }
  }

  // Ends when the client has gone (broken_). Meanwhile reads what the client sends ahead.
  // The end of the client's input alone does not tell a closed connection from a client that will send no more but
  // still reads. So the first bytes of the answer, which are the same for all answers, are sent: a closed peer resets.
  asio::awaitable<void> watch_peer() {
    while (buffer_.size() < kPipelineBytes && !half_closed_) {
      const auto [ec, n] = co_await socket_.async_read_some(buffer_.prepare(4096), kAwait);
      if (!ec) {
        buffer_.commit(n);
      } else if (ec == asio::error::eof) {
        half_closed_ = true;
        const auto [sent_ec, sent] = co_await asio::async_write(socket_, asio::buffer(kStatusPrefix), kAwait);
        prefix_sent_ = sent;
        broken_ = static_cast<bool>(sent_ec) && sent_ec != asio::error::operation_aborted;
        if (sent_ec) co_return;
      } else {
        broken_ = ec != asio::error::operation_aborted;
        co_return;
      }
    }
    for (;;) {
      const auto [ec] = co_await socket_.async_wait(tcp::socket::wait_error, kAwait);
      if (ec) co_return;
      int pending = 0;
      socklen_t size = sizeof pending;
      ::getsockopt(socket_.native_handle(), SOL_SOCKET, SO_ERROR, &pending, &size);
      if (pending != 0) {
        broken_ = true;
        co_return;
      }
    }
  }

  // Answers a request that will not be handled, and ends the connection. Always false.
  asio::awaitable<bool> refuse(Refusal refusal, const RequestHead* head) {
    if (refusal.status == 0 || broken_) co_return false;
    Response response = core_->application->refusal(refusal.status, refusal.message, head);
    response.close = true;
    static const RequestHead kNoHead;
    co_return co_await write(head ? *head : kNoHead, std::move(response));
  }

  // True: the connection may serve another request.
  asio::awaitable<bool> write(const RequestHead& head, Response response) {
    const bool close = response.close || !keep_alive_ || half_closed_ || core_->draining || !next_may_be_request();
    const std::string text = response_head(response, close);
    const bool with_body = head.method != "HEAD" && response.status != 204;
    const std::array<asio::const_buffer, 2> parts{asio::buffer(text) + std::exchange(prefix_sent_, 0),
                                                  with_body ? asio::buffer(response.body) : asio::const_buffer{}};
    arm(core_->limits.write_timeout);
    const auto [ec, n] = co_await asio::async_write(socket_, parts, kAwait);
    disarm();
    if (ec) co_return false;
    if (close) co_await linger();
    co_return !close;
  }

  // After a body whose announced length was wrong, what follows is the rest of it and not a request.
  bool next_may_be_request() const {
    if (buffer_.size() == 0) return true;
    const char first = input().front();
    return (first >= 'A' && first <= 'Z') || first == '\r' || first == '\n';
  }

  // Closing with unread input would reset the connection and might take the answer with it.
  asio::awaitable<void> linger() {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    if (half_closed_) co_return;
    arm(kLinger);
    std::array<char, 16384> sink;
    for (;;) {
      const auto [ec, n] = co_await socket_.async_read_some(asio::buffer(sink), kAwait);
      if (ec || timed_out_) co_return;
    }
  }

  std::shared_ptr<ServerCore> core_;
  tcp::socket socket_;
  asio::steady_timer deadline_;
  asio::steady_timer answered_;  // never expires; cancelled when response_ is there
  boost::beast::flat_buffer buffer_;
  std::optional<Response> response_;
  std::uint64_t deadline_generation_ = 0;
  std::size_t prefix_sent_ = 0;  // bytes of kStatusPrefix already written for the current answer
  bool timed_out_ = false;
  bool idle_ = false;
  bool keep_alive_ = false;
  bool half_closed_ = false;
  bool broken_ = false;  // the client has gone
  bool cut_ = false;
};

void HttpExchange::send(Response response) {
  asio::post(core_->io, [connection = connection_, response = std::move(response)]() mutable {
    if (const auto alive = connection.lock()) alive->deliver(std::move(response));
  });
}

}  // namespace

std::shared_ptr<Connection> Connection::create(std::shared_ptr<ServerCore> core, tcp::socket socket) {
  return std::make_shared<HttpConnection>(std::move(core), std::move(socket));
}

}  // namespace lily::net
