#include "server/http_listener.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/strings.h"

namespace staffel {
namespace {

constexpr int kBacklog = 4096;
// Unsent bytes that the kernel keeps for a client beyond what is in flight. More would only hide a
// slow client from our own limit.
constexpr int kKernelUnsentBytes = 128 << 10;

Status Failed(const std::string& address, int error) {
  return absl::FailedPreconditionError(
      StrCat("Cannot listen on ", address, ": ", std::strerror(error),
             error == EADDRINUSE ? "; stop the program that uses it, or take another port." : "."));
}

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

// Accepted sockets inherit these from the listening one (Linux).
void SetTcpOptions(int fd) {
  SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kKernelUnsentBytes);
  // A client whose machine vanished is noticed after two minutes while nothing is sent.
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 15);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

int BoundPort(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

std::string NumericHost(const addrinfo& info) {
  char host[NI_MAXHOST] = "?";
  getnameinfo(info.ai_addr, info.ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

// `error` gets the errno of a failure.
Result<ListeningSocket> ListenOn(const addrinfo& info, bool v6_only, int& port, int& error) {
  std::string host = NumericHost(info);
  std::string address = HostPort(host, port);
  int fd = socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (fd < 0) return Failed(address, error = errno);
  ListeningSocket guard(fd, info.ai_family, address);
  SetTcpOptions(fd);
  sockaddr_storage storage{};
  std::memcpy(&storage, info.ai_addr, info.ai_addrlen);
  if (info.ai_family == AF_INET6) {
    SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, v6_only ? 1 : 0);
    reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(static_cast<uint16_t>(port));
  }
  if (bind(fd, reinterpret_cast<sockaddr*>(&storage), info.ai_addrlen) != 0 ||
      listen(fd, kBacklog) != 0) {
    return Failed(address, error = errno);
  }
  port = BoundPort(fd);
  return ListeningSocket(guard.Release(), info.ai_family, HostPort(host, port));
}

bool IsAmong(const std::vector<ListeningSocket>& sockets, const std::string& address) {
  return std::any_of(sockets.begin(), sockets.end(),
                     [&](const ListeningSocket& socket) { return socket.address() == address; });
}

// Whether somebody accepts connections on the socket file.
bool IsServed(const sockaddr_un& address) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return true;
  int failed = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  bool refused = failed && errno == ECONNREFUSED;
  close(fd);
  return !refused;
}

}  // namespace

ListeningSocket::~ListeningSocket() {
  if (fd_ >= 0) close(fd_);
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : fd_(other.Release()), family_(other.family_), address_(std::move(other.address_)) {}

int ListeningSocket::Release() { return std::exchange(fd_, -1); }

std::string HostPort(std::string_view host, int port) {
  bool bare_v6 = host.find(':') != std::string_view::npos && !host.starts_with('[');
  return bare_v6 ? StrCat("[", host, "]:", port) : StrCat(host, ":", port);
}

Result<std::vector<ListeningSocket>> ListenTcp(const std::string& host, int& port, bool v6_only) {
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        StrCat("Cannot listen on port ", port, ": a port is a number from 0 to 65535."));
  }
  std::string name = host;
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') {
    name = name.substr(1, name.size() - 2);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  int failure = getaddrinfo(name.empty() ? nullptr : name.c_str(), "0", &hints, &found);
  if (failure != 0) {
    return absl::FailedPreconditionError(
        StrCat("Cannot listen on ", HostPort(host, port), ": the host is not known (",
               failure == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(failure), ")."));
  }
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);

  // The wildcards of both families would collide.
  if (found->ai_next) v6_only = true;
  std::vector<ListeningSocket> sockets;
  Status missing;
  for (const addrinfo* info = found; info; info = info->ai_next) {
    if (info->ai_family != AF_INET && info->ai_family != AF_INET6) continue;
    int error = 0;
    Result<ListeningSocket> socket = ListenOn(*info, v6_only, port, error);
    if (socket.ok()) {
      sockets.push_back(*std::move(socket));
    } else if (error == EADDRINUSE && IsAmong(sockets, HostPort(NumericHost(*info), port))) {
      continue;  // the name lists an address twice
    } else if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) {
      missing = socket.status();
    } else {
      return socket.status();
    }
  }
  if (sockets.empty()) {
    return missing.ok()
               ? absl::FailedPreconditionError(StrCat("Cannot listen on ", HostPort(host, port),
                                                      ": the host has no address."))
               : missing;
  }
  return sockets;
}

Result<ListeningSocket> ListenUnix(const std::string& path) {
  std::string address = StrCat("unix:", path);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof name.sun_path) {
    return absl::InvalidArgumentError(StrCat("Cannot listen on ", address,
                                             ": the path is longer than ", sizeof name.sun_path - 1,
                                             " bytes."));
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  struct stat file {};
  if (lstat(path.c_str(), &file) == 0) {
    if (!S_ISSOCK(file.st_mode) || IsServed(name)) return Failed(address, EADDRINUSE);
    unlink(path.c_str());
  }
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return Failed(address, errno);
  ListeningSocket guard(fd, AF_UNIX, address);
  if (bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0 || listen(fd, kBacklog) != 0) {
    return Failed(address, errno);
  }
  return guard;
}

void RaiseOpenFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace staffel
