// A client of raw bytes on a blocking socket, for tests that must say exactly what is sent.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace staffel {

struct RawResponse {
  int status = 0;
  std::multimap<std::string, std::string> headers;  // names in lower case
  std::string body;                                 // without the chunk framing

  std::string header(const std::string& name) const {
    auto it = headers.find(name);
    return it == headers.end() ? "" : it->second;
  }
};

class RawClient {
 public:
  explicit RawClient(int port, int receive_buffer_bytes = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer_bytes) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Connect(reinterpret_cast<sockaddr*>(&address), sizeof address);
    int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  explicit RawClient(const std::string& unix_path) {
    fd_ = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, unix_path.c_str(), sizeof address.sun_path - 1);
    Connect(reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  ~RawClient() { Close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  RawClient(RawClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}

  RawClient& Send(std::string_view data) {
    while (!data.empty()) {
      ssize_t sent = send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;  // the server has closed; its answer tells why
      data.remove_prefix(static_cast<size_t>(sent));
    }
    return *this;
  }

  // Interim answers count as answers. `head_only`: to a HEAD request.
  RawResponse Read(bool head_only = false) {
    RawResponse response = ReadHead();
    if (head_only || response.status < 200 || response.status == 204) return response;
    if (response.header("transfer-encoding") == "chunked") {
      for (std::string chunk; !(chunk = ReadChunk()).empty();) response.body += chunk;
    } else {
      response.body = Take(std::stoul("0" + response.header("content-length")));
    }
    return response;
  }

  RawResponse ReadHead() {
    RawResponse response;
    std::string line = Line();
    if (!line.starts_with("HTTP/1.1 ")) throw std::runtime_error("no status line: " + line);
    response.status = std::stoi(line.substr(9));
    while (!(line = Line()).empty()) {
      size_t colon = line.find(": ");
      if (colon == std::string::npos) throw std::runtime_error("no header: " + line);
      for (size_t i = 0; i < colon; i++) line[i] = static_cast<char>(std::tolower(line[i]));
      response.headers.emplace(line.substr(0, colon), line.substr(colon + 2));
    }
    return response;
  }

  // Data of the next chunk; "" for the last one.
  std::string ReadChunk() {
    size_t size = std::stoul(Line(), nullptr, 16);
    std::string data = Take(size);
    if (Line() != "") throw std::runtime_error("chunk without its end");
    return data;
  }

  // Everything until the server closes. Throws on a reset or after the time-out.
  std::string ReadToEnd() {
    while (More()) continue;
    return std::exchange(buffer_, "");
  }
  // True: closed in order with nothing left; false: data came.
  bool AtEnd() { return buffer_.empty() && !More(); }
  // Whether anything, an end included, can be read within that time.
  bool Readable(int wait_ms) {
    pollfd item{fd_, POLLIN, 0};
    return !buffer_.empty() || poll(&item, 1, wait_ms) > 0;
  }

  void ShutdownWrite() { shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  void Reset() {
    linger option{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &option, sizeof option);
    Close();
  }

 private:
  void Connect(const sockaddr* address, socklen_t size) {
    timeval limit{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd_, address, size) != 0) {
      throw std::runtime_error(std::string("connect: ") + std::strerror(errno));
    }
  }

  bool More() {
    char data[65536];
    ssize_t got = recv(fd_, data, sizeof data, 0);
    if (got < 0) throw std::runtime_error(std::string("recv: ") + std::strerror(errno));
    buffer_.append(data, static_cast<size_t>(got));
    return got > 0;
  }
  std::string Take(size_t size) {
    while (buffer_.size() < size) {
      if (!More()) throw std::runtime_error("closed within a body");
    }
    std::string data = buffer_.substr(0, size);
    buffer_.erase(0, size);
    return data;
  }
  std::string Line() {
    size_t end;
    while ((end = buffer_.find("\r\n")) == std::string::npos) {
      if (!More()) throw std::runtime_error("closed within a line: '" + buffer_ + "'");
    }
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 2);
    return line;
  }

  int fd_ = -1;
  std::string buffer_;
};

}  // namespace staffel
