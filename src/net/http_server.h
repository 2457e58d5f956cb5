// An HTTP/1.1 server without Boost in sight: it frames requests strictly, enforces limits and deadlines, and hands
// whole requests to an Application. One thread does all input and output; answers may come from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lily::net {

struct Header {
  std::string name;
  std::string value;
};

struct RequestHead {
  std::string method;  // as sent, any token
  std::string target;  // as sent: "/path?query", "http://host/path", "*"
  bool http_1_0 = false;
  std::vector<Header> headers;

  // Every value of that header, in order; the name is compared without case.
  std::vector<std::string_view> values(std::string_view name) const;
  // The path of the target: no query, no scheme, no authority.
  std::string_view path() const;
};

struct Request {
  RequestHead head;
  std::string body;
};

struct Response {
  int status = 200;
  std::vector<Header> headers;  // Content-Length, Date, Server and Connection are added by the server
  std::string body;             // left out of answers to HEAD, but counted
  bool close = false;           // end the connection after this answer
};

// One request waiting for its answer. All functions may be called from any thread. If the last reference goes away
// without an answer, the client gets a 500.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // The first call answers, later ones are ignored.
  virtual void respond(Response response) = 0;
  // Calls back once when the client has gone before the answer, at once if it has already. A client that only closed
  // its sending half is not gone. The callback must return at once.
  virtual void on_disconnect(std::function<void()> callback) = 0;
};

// What the server serves. Called on the server's thread; every call must return at once.
class Application {
 public:
  virtual ~Application() = default;
  // Sees each head before any of its body is read. An answer given here is final, and the body is not read.
  virtual std::optional<Response> screen(const RequestHead& head) = 0;
  virtual void handle(Request request, std::shared_ptr<Exchange> exchange) = 0;
  // Dresses a refusal that the server itself has to give; head is null if there was none to speak of.
  virtual Response refusal(int status, std::string_view message, const RequestHead* head) = 0;
};

struct Limits {
  std::size_t head_bytes = std::size_t{64} << 10;
  std::size_t body_bytes = std::size_t{16} << 20;
  // Bodies larger than small_body_bytes, by their announced length, share a budget while they arrive: one that does not
  // fit beside others gets 503. A body of unknown length counts as body_bytes. The API reads small ones in a lane of
  // their own, too.
  std::size_t small_body_bytes = std::size_t{256} << 10;
  std::size_t arriving_bytes = std::size_t{256} << 20;
  int connections = 1024;
  // Totals, not restarted by a byte that arrives.
  std::chrono::milliseconds head_timeout{10'000};
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds write_timeout{60'000};
  std::chrono::milliseconds idle_timeout{75'000};  // between requests
};

class HttpServer {
 public:
  // Binds and listens; connections wait in the backlog until start(). host: an address, "localhost" or a name; port 0:
  // any free one. Errors: Unavailable (address in use), InvalidArgument (unknown host), Io.
  static Result<std::unique_ptr<HttpServer>> bind(const std::string& host, int port, const Limits& limits);
  virtual ~HttpServer() = default;  // stop()

  virtual int port() const = 0;
  virtual const std::string& address() const = 0;  // numeric
  virtual bool loopback() const = 0;               // only this machine can connect

  // Begins to accept. The application must outlive the server.
  virtual void start(Application& application) = 0;
  // Stops accepting, closes idle connections, and waits until every running request is answered, but not longer than
  // `grace`. True: nothing is left.
  virtual bool drain(std::chrono::milliseconds grace) = 0;
  // Cuts what is left and joins the thread.
  virtual void stop() = 0;
};

bool equals_ignoring_case(std::string_view a, std::string_view b);

}  // namespace lily::net
