// A client that sends bytes as they are, for tests of the server. Waits at most 20 s for anything.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace lily::test {

struct RawResponse {
  int status = 0;                              // 0: the connection ended first
  std::map<std::string, std::string> headers;  // names in lower case; repeated ones joined by ", "
  std::string body;
};

class RawClient {
 public:
  explicit RawClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  // The next answer; HEAD answers have a length and no body.
  RawResponse receive(bool head_only = false) {
    RawResponse response;
    std::size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == buffer_.npos) {
      if (!fill()) return response;
    }
    parse_head(buffer_.substr(0, end + 2), response);
    buffer_.erase(0, end + 4);
    const auto length = response.headers.find("content-length");
    const std::size_t size =
        head_only || length == response.headers.end() ? 0 : std::strtoull(length->second.c_str(), nullptr, 10);
    while (buffer_.size() < size) {
      if (!fill()) break;
    }
    response.body = buffer_.substr(0, size);
    buffer_.erase(0, size);
    return response;
  }

  RawResponse ask(std::string_view bytes) {
    send(bytes);
    return receive();
  }

  // Whether the server ends the connection without sending anything more.
  bool closed() { return buffer_.empty() && !fill(); }
  // What has come and not been taken, after waiting a little for more.
  std::string pending(int wait_ms) {
    pollfd poll_fd{fd_, POLLIN, 0};
    if (::poll(&poll_fd, 1, wait_ms) > 0) fill();
    return buffer_;
  }

  void shutdown_send() { ::shutdown(fd_, SHUT_WR); }
  void reset() {
    const linger abort{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
    close();
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  bool fill() {
    pollfd poll_fd{fd_, POLLIN, 0};
    if (::poll(&poll_fd, 1, 20'000) <= 0) {
      ADD_FAILURE() << "nothing came within 20 s";
      return false;
    }
    char chunk[16384];
    const ssize_t n = ::recv(fd_, chunk, sizeof chunk, 0);
    if (n <= 0) return false;
    buffer_.append(chunk, static_cast<std::size_t>(n));
    return true;
  }

  static void parse_head(std::string_view head, RawResponse& response) {
    response.status = std::atoi(std::string(head.substr(std::min<std::size_t>(9, head.size()), 3)).c_str());
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const std::size_t end = head.find("\r\n", at);
      const std::string_view line = head.substr(at, end - at);
      const std::size_t colon = line.find(": ");
      std::string name(line.substr(0, colon));
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      std::string& value = response.headers[name];
      if (!value.empty()) value += ", ";
      value += line.substr(colon + 2);
      at = end + 2;
    }
  }

  int fd_;
  bool connected_ = false;
  std::string buffer_;
};

}  // namespace lily::test
