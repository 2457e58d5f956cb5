// The server over real sockets: framing, limits, deadlines, clients that leave, shutdown.
#include "net/http_server.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "support/raw_client.h"

namespace lily::net {
namespace {

using namespace std::chrono_literals;
using test::RawClient;
using test::RawResponse;

// Echoes bodies; "/hold" keeps the exchange until the test answers it; "/refused" is refused by its head.
class Echo final : public Application {
 public:
  std::optional<Response> screen(const RequestHead& head) override {
    if (head.path() == "/refused") return Response{.status = 401, .headers = {}, .body = "refused\n"};
    return std::nullopt;
  }

  void handle(Request request, std::shared_ptr<Exchange> exchange) override {
    if (request.head.path() == "/throw") throw std::bad_alloc();
    if (request.head.path() == "/drop") return;
    if (request.head.path() == "/hold") {
      exchange->on_disconnect([this] { note([this] { ++n_gone_; }); });
      note([&] { held_.push_back(exchange); });
      return;
    }
    exchange->respond({.status = 200, .headers = {}, .body = request.head.method + " " + request.body});
  }

  Response refusal(int status, std::string_view message, const RequestHead*) override {
    return {.status = status, .headers = {}, .body = std::string(message) + "\n"};
  }

  std::shared_ptr<Exchange> held() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 20s, [this] { return !held_.empty(); }));
    auto exchange = held_.front();
    held_.pop_front();
    return exchange;
  }
  bool wait_gone(int n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return n_gone_ >= n; });
  }
  int n_gone() {
    const std::lock_guard lock(mutex_);
    return n_gone_;
  }

 private:
  template <class F>
  void note(F change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Exchange>> held_;
  int n_gone_ = 0;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void start(Limits limits = {}) {
    auto server = HttpServer::bind("127.0.0.1", 0, limits);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    server_->start(echo_);
  }
  int port() const { return server_->port(); }

  RawResponse ask(std::string_view bytes) {
    RawClient client(port());
    return client.ask(bytes);
  }

  Echo echo_;
  std::unique_ptr<HttpServer> server_;
};

std::string post(std::string_view body, std::string_view headers = "", std::string_view path = "/") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{}\r\n{}", path, body.size(),
                     headers, body);
}

TEST_F(HttpServerTest, H01ChunkedBodiesEqualPlainOnes) {
  start();
  RawClient client(port());
  const std::string head = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string one = head + "b\r\nhello world\r\n0\r\n\r\n";
  std::string many = head;
  for (const char c : std::string_view("hello world")) many += fmt::format("1;x=y\r\n{}\r\n", c);
  many += "0;last\r\nX-Trailer: yes\r\n\r\n";
  for (const std::string& request : {post("hello world"), one, many, post("hello world")}) {
    const RawResponse response = client.ask(request);
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST hello world");
  }
}

TEST_F(HttpServerTest, H02LengthAndChunkedTogetherEndTheConnection) {
  start();
  for (const char* framing :
       {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"}) {
    RawClient client(port());
    client.send(fmt::format(
        "POST / HTTP/1.1\r\nHost: localhost\r\n{}\r\n0\r\n\r\nGET /next HTTP/1.1\r\nHost: localhost\r\n\r\n", framing));
    EXPECT_EQ(client.receive().status, 400) << framing;
    EXPECT_TRUE(client.closed()) << framing;
  }
}

TEST_F(HttpServerTest, H02OtherTransferCodingsAreRefused) {
  start();
  const auto status = [&](const char* coding, const char* version = "1.1") {
    return ask(fmt::format("POST / HTTP/{}\r\nHost: localhost\r\nTransfer-Encoding: {}\r\n\r\n0\r\n\r\n", version,
                           coding))
        .status;
  };
  EXPECT_EQ(status("gzip"), 501);
  EXPECT_EQ(status("gzip, chunked"), 501);
  EXPECT_EQ(status("chunked, chunked"), 501);
  EXPECT_EQ(status("xchunked"), 501);
  EXPECT_EQ(status("chunked", "1.0"), 400);
}

TEST_F(HttpServerTest, H04MalformedLengthsAreRefusedAtOnce) {
  start();
  for (const char* length : {"-5", "+43", "43abc", "43, 43", "43\r\nContent-Length: 44", "43\r\nContent-Length: 43",
                             "99999999999999999999", "0x2b", "", " "}) {
    RawClient client(port());
    const RawResponse response =
        client.ask(fmt::format("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", length));
    EXPECT_EQ(response.status, 400) << length;
    EXPECT_TRUE(client.closed()) << length;
  }
}

TEST_F(HttpServerTest, H04TooLongALengthTimesOut) {
  start({.body_timeout = 200ms});
  RawClient client(port());
  client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n{}");
  EXPECT_EQ(client.receive().status, 408);
  EXPECT_TRUE(client.closed());
}

TEST_F(HttpServerTest, H04TheRestOfAShortBodyIsNotARequest) {
  start();
  RawClient client(port());
  client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n{\"a\":1}}]}");
  EXPECT_EQ(client.receive().body, "POST {\"a\":1}");
  EXPECT_TRUE(client.closed());
}

TEST_F(HttpServerTest, H06DeadlinesAreTotal) {
  start({.head_timeout = 400ms, .body_timeout = 400ms});
  for (const std::string& begin : {std::string("GET / HTTP/1.1\r\nX: "),
                                   std::string("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n")}) {
    RawClient client(port());
    client.send(begin);
    std::string got;
    for (int i = 0; i < 100 && got.empty(); ++i) {
      client.send("x");
      got = client.pending(100);
    }
    EXPECT_EQ(client.receive().status, 408) << begin;
  }
}

TEST_F(HttpServerTest, H06SlowClientsDoNotDelayOthers) {
  start({.head_timeout = 60'000ms});
  std::deque<RawClient> slow;
  for (int i = 0; i < 200; ++i) {
    slow.emplace_back(port());
    slow.back().send("G");
  }
  EXPECT_EQ(ask(post("quick")).body, "POST quick");
}

TEST_F(HttpServerTest, H07ContinueIsSaidWhenTheBodyIsWanted) {
  start({.body_bytes = 1000});
  RawClient client(port());
  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.receive().status, 100);
  EXPECT_EQ(client.ask("hello").body, "POST hello");

  RawClient large(port());
  large.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(large.receive().status, 413);
  EXPECT_TRUE(large.closed());

  RawClient refused(port());
  refused.send("POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(refused.receive().status, 401);
  EXPECT_TRUE(refused.closed());
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: tea\r\n\r\nhello").status, 417);
}

TEST_F(HttpServerTest, H08BodiesOverTheLimitAreCutOff) {
  start({.body_bytes = 1000});
  EXPECT_EQ(ask(post(std::string(1000, 'x'))).status, 200);
  EXPECT_EQ(ask(post(std::string(1001, 'x'))).status, 413);
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string chunk = fmt::format("1f4\r\n{}\r\n", std::string(500, 'x'));
  EXPECT_EQ(ask(head + chunk + chunk + "0\r\n\r\n").status, 200);
  EXPECT_EQ(ask(head + chunk + chunk + "1\r\n").status, 413);  // before the end of the body
  EXPECT_EQ(ask(head + "ffffffffffffffff\r\n").status, 413);
  EXPECT_EQ(ask(head + "1ffffffffffffffff\r\n").status, 400);
}

TEST_F(HttpServerTest, LargeBodiesThatArriveTogetherShareABudget) {
  start({.body_bytes = 1000, .small_body_bytes = 10, .arriving_bytes = 1500});
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n";
  const std::string large = post(std::string(600, 'x'));
  {
    RawClient leaves(port());
    leaves.send(head);
    EXPECT_EQ(leaves.receive().status, 100);  // its share is taken
    EXPECT_EQ(ask(large).status, 503);
    EXPECT_EQ(ask(post(std::string(10, 'x'))).status, 200);
    EXPECT_EQ(ask(post(std::string(500, 'x'))).status, 200);
  }
  RawClient slow(port());
  int status = 503;
  for (int i = 0; i < 200 && status == 503; ++i) {  // until the server has noticed that the first client left
    std::this_thread::sleep_for(10ms);
    status = ask(large).status;
  }
  EXPECT_EQ(status, 200);
  slow.send(head);
  EXPECT_EQ(slow.receive().status, 100);
  EXPECT_EQ(ask(large).status, 503);
  EXPECT_EQ(slow.ask(std::string(1000, 'y')).status, 200);
  EXPECT_EQ(ask(large).status, 200);
}

TEST_F(HttpServerTest, ABodyLargerThanTheBudgetArrivesAlone) {
  start({.body_bytes = 1000, .small_body_bytes = 10, .arriving_bytes = 100});
  EXPECT_EQ(ask(post(std::string(1000, 'x'))).status, 200);
  const std::string chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
  EXPECT_EQ(ask(chunked).status, 200);
  RawClient slow(port());
  slow.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(slow.receive().status, 100);
  EXPECT_EQ(ask(chunked).status, 503);  // of unknown length, both count as the most
  EXPECT_EQ(ask(post(std::string(10, 'x'))).status, 200);
}

TEST_F(HttpServerTest, LargeHeadsAreRefused) {
  start({.head_bytes = 4096});
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(5000, 'x') + "\r\n\r\n").status, 431);
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_GE(ask(head + "1;x=" + std::string(200'000, 'y')).status, 400);
  EXPECT_GE(ask(head + "0\r\nT: " + std::string(200'000, 'y')).status, 400);
}

TEST_F(HttpServerTest, H10OldAndUnknownVersions) {
  start();
  for (const char* extra : {"", "Connection: keep-alive\r\n"}) {
    RawClient client(port());
    const RawResponse response = client.ask(fmt::format("POST / HTTP/1.0\r\n{}Content-Length: 2\r\n\r\nhi", extra));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.headers.count("transfer-encoding"), 0u);
    EXPECT_EQ(response.body, "POST hi");
    EXPECT_TRUE(client.closed());
  }
  for (const char* version : {"HTTP/2.0", "HTTP/9.9", "HTTP/1.2"})
    EXPECT_EQ(ask(fmt::format("GET / {}\r\nHost: a\r\n\r\n", version)).status, 505) << version;
  for (const char* line : {"GET /", "GET / HTTX/1.1", "GET  / HTTP/1.1", "G\x01T / HTTP/1.1", "\x16\x03\x01"})
    EXPECT_EQ(ask(fmt::format("{}\r\nHost: a\r\n\r\n", line)).status, 400) << line;
}

TEST_F(HttpServerTest, MalformedHeadersAreRefused) {
  start();
  for (const char* header : {"Na me: x", "Name : x", ": x", "Name", "Name: a\x01"})
    EXPECT_EQ(ask(fmt::format("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n\r\n", header)).status, 400) << header;
}

TEST_F(HttpServerTest, H11HeadHasTheLengthAndNoBody) {
  start();
  RawClient client(port());
  client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.receive(true).headers["content-length"], "5");
  EXPECT_EQ(client.ask(post("next")).body, "POST next");
  EXPECT_EQ(client.ask(fmt::format("{} / HTTP/1.1\r\nHost: a\r\n\r\n", std::string(300, 'M'))).body,
            std::string(300, 'M') + " ");
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  RawClient client(port());
  std::string all;
  for (int i = 0; i < 50; ++i) all += post(std::to_string(i));
  client.send(all);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client.receive().body, "POST " + std::to_string(i));
}

TEST_F(HttpServerTest, RequestsSentWhileOneIsAnsweredWait) {
  start();
  RawClient client(port());
  client.send(post("first", "", "/hold"));
  const auto exchange = echo_.held();
  client.send(post("second"));
  EXPECT_EQ(client.pending(50), "");
  exchange->respond({.status = 200, .headers = {}, .body = "late"});
  EXPECT_EQ(client.receive().body, "late");
  EXPECT_EQ(client.receive().body, "POST second");
}

TEST_F(HttpServerTest, ExchangesThatAreDroppedOrThrownAnswer500) {
  start();
  EXPECT_EQ(ask(post("", "", "/drop")).status, 500);
  EXPECT_EQ(ask(post("", "", "/throw")).status, 500);
  EXPECT_EQ(ask(post("alive")).status, 200);
}

TEST_F(HttpServerTest, O01ClosedAndResetClientsAreNoticed) {
  start();
  RawClient closing(port());
  closing.send(post("", "", "/hold"));
  const auto first = echo_.held();
  closing.close();
  EXPECT_TRUE(echo_.wait_gone(1));

  RawClient resetting(port());
  resetting.send(post("", "", "/hold"));
  const auto second = echo_.held();
  resetting.reset();
  EXPECT_TRUE(echo_.wait_gone(2));

  first->respond({});
  second->respond({});
  bool called = false;
  second->on_disconnect([&] { called = true; });
  EXPECT_FALSE(called) << "an answered exchange has no more to say";
  EXPECT_EQ(ask(post("alive")).status, 200);
}

TEST_F(HttpServerTest, O01HalfCloseIsNotACancel) {
  start();
  RawClient client(port());
  client.send(post("", "", "/hold"));
  const auto exchange = echo_.held();
  client.shutdown_send();
  EXPECT_EQ(client.pending(300), "HTTP/1.1 ");  // the beginning of the answer tells a closed client from this one
  EXPECT_EQ(echo_.n_gone(), 0);
  exchange->respond({.status = 200, .headers = {}, .body = "still here"});
  EXPECT_EQ(client.receive().body, "still here");
  EXPECT_TRUE(client.closed());
}

TEST_F(HttpServerTest, ClientsOverTheLimitAreTurnedAway) {
  start({.connections = 2});
  RawClient first(port());
  RawClient second(port());
  EXPECT_EQ(first.ask(post("a")).status, 200);
  EXPECT_EQ(second.ask(post("b")).status, 200);
  RawClient third(port());
  EXPECT_EQ(third.receive().status, 503);
  first.close();
  third.close();
  for (int i = 0; i < 200; ++i) {
    if (ask(post("c")).status == 200) return;
    std::this_thread::sleep_for(20ms);
  }
  FAIL() << "the places of clients that left were not given away";
}

TEST_F(HttpServerTest, O06DrainEndsIdleConnectionsAndFinishesRunningRequests) {
  start();
  RawClient idle(port());
  EXPECT_EQ(idle.ask(post("a")).status, 200);
  RawClient running(port());
  running.send(post("", "", "/hold"));
  const auto exchange = echo_.held();
  EXPECT_FALSE(server_->drain(50ms));
  EXPECT_TRUE(idle.closed());
  EXPECT_FALSE(RawClient(port()).connected());
  exchange->respond({.status = 200, .headers = {}, .body = "done"});
  const RawResponse response = running.receive();
  EXPECT_EQ(response.body, "done");
  EXPECT_EQ(response.headers.at("connection"), "close");
  running.close();
  EXPECT_TRUE(server_->drain(20s));
}

TEST_F(HttpServerTest, StopTellsRunningRequests) {
  start();
  RawClient client(port());
  client.send(post("", "", "/hold"));
  const auto exchange = echo_.held();
  server_->stop();
  EXPECT_EQ(echo_.n_gone(), 1);
  exchange->respond({});  // after the end: nobody minds
}

TEST_F(HttpServerTest, PortInUseIsSaidClearly) {
  start();
  const auto second = HttpServer::bind("127.0.0.1", port(), {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::Unavailable);
  EXPECT_NE(second.error().message.find(std::to_string(port())), std::string::npos);
  EXPECT_EQ(HttpServer::bind("no.such.host.invalid", 0, {}).error().code, ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace lily::net
