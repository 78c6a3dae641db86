// Listening sockets: resolving, binding and the messages when that fails. Blocking; used once at
// start.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "staffel/status.h"

namespace staffel {

// A listening, non-blocking socket; closed by the destructor unless released.
class ListeningSocket {
 public:
  ListeningSocket(int fd, int family, std::string address)
      : fd_(fd), family_(family), address_(std::move(address)) {}
  ~ListeningSocket();
  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;

  int family() const { return family_; }                   // AF_INET, AF_INET6, AF_UNIX
  const std::string& address() const { return address_; }  // "127.0.0.1:8000", "unix:/path"
  int Release();

 private:
  int fd_, family_;
  std::string address_;
};

// "[::1]:8000" for "::1" and "[::1]".
std::string HostPort(std::string_view host, int port);

// All addresses of the host, one port. `port` 0 becomes the port that was chosen for the first
// address. "::" also takes IPv4 clients, unless `v6_only`. Addresses of a name that this machine
// does not have (localhost as ::1 without IPv6) are left out if another one works.
Result<std::vector<ListeningSocket>> ListenTcp(const std::string& host, int& port, bool v6_only);

// A socket file that nobody listens on any more is replaced; anything else at that path is not.
Result<ListeningSocket> ListenUnix(const std::string& path);

// Raises the soft limit of open files to the hard one: each client is one.
void RaiseOpenFileLimit();

}  // namespace staffel
