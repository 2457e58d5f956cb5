// The listener and the thread that runs all connections.
#include "net/http_server.h"

#include <sys/resource.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>
#include <utility>

#include "base/log.h"
#include "net/http_connection.h"

namespace lily::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kTurnedAwayAtOnce = 64;  // clients over the limit that are told so; beyond, they are just closed
constexpr std::chrono::milliseconds kAcceptPause{100};

// Each connection is a descriptor, and the usual soft limit of 1024 is less than the connections allowed by default.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

Result<asio::ip::address> resolve(asio::io_context& io, const std::string& host) {
  error_code ec;
  if (host == "localhost") return asio::ip::address_v4::loopback();
  if (const auto address = asio::ip::make_address(host, ec); !ec) return address;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, "", ec);
  if (ec || found.empty()) return fail(ErrorCode::InvalidArgument, "cannot listen on '{}': no such address", host);
  return found.begin()->endpoint().address();
}

class BeastServer final : public HttpServer {
 public:
  explicit BeastServer(const Limits& limits) : core_(std::make_shared<ServerCore>()), acceptor_(core_->io) {
    core_->limits = limits;
  }
  ~BeastServer() override { stop(); }

  Result<void> open(const std::string& host, int port) {
    LILY_TRY(const asio::ip::address address, resolve(core_->io, host));
    const tcp::endpoint endpoint(address, static_cast<std::uint16_t>(port));
    error_code ec;
    acceptor_.open(endpoint.protocol(), ec);
    if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) acceptor_.bind(endpoint, ec);
    if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
    if (ec == asio::error::address_in_use) {
      return fail(ErrorCode::Unavailable, "port {} on {} is in use; stop what uses it or choose another with --port",
                  port, address.to_string());
    }
    if (ec) return fail(ErrorCode::Io, "cannot listen on {}:{}: {}", address.to_string(), port, ec.message());
    const tcp::endpoint bound = acceptor_.local_endpoint();
    port_ = bound.port();
    loopback_ = bound.address().is_loopback();
    address_ = bound.address().to_string();
    return {};
  }

  int port() const override { return port_; }
  const std::string& address() const override { return address_; }
  bool loopback() const override { return loopback_; }

  void start(Application& application) override {
    raise_descriptor_limit();
    core_->application = &application;
    asio::co_spawn(core_->io, accept_loop(), asio::detached);
    thread_ = std::thread([core = core_] { core->io.run(); });
  }

  bool drain(std::chrono::milliseconds grace) override {
    if (!thread_.joinable()) return true;
    asio::post(core_->io, [this] {
      stop_accepting();
      for (const auto& connection : core_->connections) connection->begin_drain();
    });
    std::unique_lock lock(core_->mutex);
    return core_->changed.wait_for(lock, grace, [this] { return drained_ && core_->n_connections == 0; });
  }

  void stop() override {
    if (!thread_.joinable()) return;
    asio::post(core_->io, [this] {
      stop_accepting();
      for (const auto& connection : core_->connections) connection->cut();
    });
    thread_.join();  // the io_context runs out of work once every connection has ended
  }

 private:
  void stop_accepting() {
    error_code ignored;
    acceptor_.close(ignored);
    core_->draining = true;
    const std::lock_guard lock(core_->mutex);
    drained_ = true;
    core_->changed.notify_all();
  }

  asio::awaitable<void> accept_loop() {
    while (acceptor_.is_open()) {
      auto [ec, socket] = co_await acceptor_.async_accept(asio::as_tuple(asio::use_awaitable));
      if (!ec) {
        admit(std::move(socket));
      } else if (acceptor_.is_open() && ec != asio::error::connection_aborted) {
        log::warn("cannot accept connections: {}", ec.message());
        asio::steady_timer pause(core_->io, kAcceptPause);
        co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
      }
    }
  }

  void admit(tcp::socket socket) {
    const std::size_t most = static_cast<std::size_t>(core_->limits.connections);
    const std::size_t now = core_->connections.size();
    if (now >= most + kTurnedAwayAtOnce) return;
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    const auto connection = Connection::create(core_, std::move(socket));
    core_->connections.insert(connection);
    update_count();
    asio::co_spawn(core_->io, connection->run(now >= most), [core = core_, connection](const std::exception_ptr&) {
      core->connections.erase(connection);
      const std::lock_guard lock(core->mutex);
      core->n_connections = core->connections.size();
      core->changed.notify_all();
    });
  }

  void update_count() {
    const std::lock_guard lock(core_->mutex);
    core_->n_connections = core_->connections.size();
  }

  std::shared_ptr<ServerCore> core_;
  tcp::acceptor acceptor_;
  std::thread thread_;
  std::string address_;
  int port_ = 0;
  bool loopback_ = false;
  bool drained_ = false;  // guarded by core_->mutex: the draining request has been seen by the server's thread
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::bind(const std::string& host, int port, const Limits& limits) {
  try {
    auto server = std::make_unique<BeastServer>(limits);
    LILY_TRY_VOID(server->open(host, port));
    return server;
  } catch (const std::exception& e) {
    return fail(ErrorCode::Io, "cannot listen on {}:{}: {}", host, port, e.what());
  }
}

}  // namespace lily::net
