// IPv4 and IPv6 addresses of sockets as text, and endpoint addresses:
// "tcp://10.0.0.1:7001?unix=NAME", "tcp://[fe80::1%eth0]:7001?unix=NAME" with NAME in the abstract
// namespace of UNIX sockets.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "staffel/status.h"

namespace staffel {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// host: an address, with or without brackets and zone, or the name of an interface.
Result<SocketAddress> ResolveHost(std::string_view host, uint16_t port);
void SetPort(SocketAddress& address, uint16_t port);
// "HOST:PORT", brackets around IPv6.
std::string HostAndPort(const SocketAddress& address);
// Of link-local addresses the zone counts on the own machine only: a peer's gets that of `own`.
void TakeZone(SocketAddress& peer, const SocketAddress& own);

struct EndpointAddress {
  SocketAddress tcp;
  std::string unix_name;  // empty: none
};
std::string FormatEndpoint(const EndpointAddress& address);
Result<EndpointAddress> ParseEndpoint(std::string_view text);

SocketAddress UnixAddress(std::string_view name);

}  // namespace staffel
