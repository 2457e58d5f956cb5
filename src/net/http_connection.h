// One client connection, and what all connections of a server share. Internal to net: this is where Asio begins.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <set>

#include "net/http_server.h"

namespace lily::net {

class Connection;

// Lives as long as the server or any Exchange that still wants to answer. Everything but the count is touched by the
// server's thread alone.
struct ServerCore {
  boost::asio::io_context io{1};
  Limits limits;
  Application* application = nullptr;
  bool draining = false;
  std::size_t arriving_bytes = 0;  // of large bodies, as announced
  std::set<std::shared_ptr<Connection>> connections;

  std::mutex mutex;
  std::condition_variable changed;
  std::size_t n_connections = 0;  // guarded by mutex, mirrors connections.size()
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  static std::shared_ptr<Connection> create(std::shared_ptr<ServerCore> core, boost::asio::ip::tcp::socket socket);
  virtual ~Connection() = default;

  // Serves until the client or the server ends it. With `turn_away`, answers 503 and ends.
  virtual boost::asio::awaitable<void> run(bool turn_away) = 0;
  virtual void begin_drain() = 0;  // ends now if idle, else after the current request
  virtual void cut() = 0;          // ends now, telling the current request that its client has gone
};

}  // namespace lily::net
