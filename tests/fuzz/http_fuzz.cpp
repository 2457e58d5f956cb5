// Any bytes on a connection: the server answers in whole HTTP responses, ends the connection, and lives.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "api/service.h"
#include "base/check.h"
#include "base/log.h"
#include "net/http_server.h"

namespace {

using namespace lily;

// The real service without a model: every route, every refusal, no answers.
int server_port() {
  static api::Service service({});
  static const std::unique_ptr<net::HttpServer> server = [] {
    log::set_level(log::Level::Error);
    net::Limits limits;
    limits.head_bytes = 2048;
    limits.body_bytes = 4096;
    auto bound = net::HttpServer::bind("127.0.0.1", 0, limits);
    LILY_CHECK(bound);
    (*bound)->start(service);
    return std::move(*bound);
  }();
  return server->port();
}

std::string exchange(std::string_view bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(server_port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  LILY_CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) break;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  ::shutdown(fd, SHUT_WR);
  std::string answer;
  char chunk[4096];
  for (ssize_t n; (n = ::recv(fd, chunk, sizeof chunk, 0)) > 0;) answer.append(chunk, static_cast<std::size_t>(n));
  ::close(fd);
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string answer = exchange(std::string_view(reinterpret_cast<const char*>(data), size));
  LILY_CHECK(answer.empty() || answer.starts_with("HTTP/1.1 "));
  LILY_CHECK(answer.empty() || answer.find("\r\n\r\n") != std::string::npos);
  return 0;
}
