#include "comm/mesh/socket_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/strings.h"

namespace staffel {
namespace {

constexpr std::string_view kScheme = "tcp://", kUnix = "?unix=";

sockaddr_in& V4(SocketAddress& a) { return reinterpret_cast<sockaddr_in&>(a.storage); }
sockaddr_in6& V6(SocketAddress& a) { return reinterpret_cast<sockaddr_in6&>(a.storage); }
const sockaddr_in& V4(const SocketAddress& a) {
  return reinterpret_cast<const sockaddr_in&>(a.storage);
}
const sockaddr_in6& V6(const SocketAddress& a) {
  return reinterpret_cast<const sockaddr_in6&>(a.storage);
}

bool IsLinkLocal(const SocketAddress& a) {
  return a.family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&V6(a).sin6_addr);
}

std::optional<SocketAddress> ParseLiteral(std::string_view host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  SocketAddress address;
  const std::string bare(host.substr(0, host.find('%')));
  if (inet_pton(AF_INET, bare.c_str(), &V4(address).sin_addr) == 1 && bare.size() == host.size()) {
    address.storage.ss_family = AF_INET;
    address.size = sizeof(sockaddr_in);
    return address;
  }
  if (inet_pton(AF_INET6, bare.c_str(), &V6(address).sin6_addr) != 1) return std::nullopt;
  address.storage.ss_family = AF_INET6;
  address.size = sizeof(sockaddr_in6);
  if (bare.size() < host.size()) {
    const std::string zone(host.substr(bare.size() + 1));
    uint32_t index = if_nametoindex(zone.c_str());
    if (index == 0) std::from_chars(zone.data(), zone.data() + zone.size(), index);
    V6(address).sin6_scope_id = index;
  }
  return address;
}

// First address of an interface: IPv4, else global IPv6, else link-local.
std::optional<SocketAddress> AddressOfInterface(std::string_view name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  std::optional<SocketAddress> best;
  int best_rank = 3;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || name != entry->ifa_name) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress address;
    address.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, entry->ifa_addr, address.size);
    const int rank = family == AF_INET ? 0 : IsLinkLocal(address) ? 2 : 1;
    if (rank < best_rank) {
      best = address;
      best_rank = rank;
    }
  }
  freeifaddrs(list);
  return best;
}

}  // namespace

Result<SocketAddress> ResolveHost(std::string_view host, uint16_t port) {
  std::optional<SocketAddress> address = ParseLiteral(host);
  if (!address) address = AddressOfInterface(host);
  if (!address) {
    return absl::InvalidArgumentError(
        StrCat("\"", host, "\" is neither an IP address nor an interface with one; see ip addr"));
  }
  SetPort(*address, port);
  return *address;
}

void SetPort(SocketAddress& address, uint16_t port) {
  (address.family() == AF_INET ? V4(address).sin_port : V6(address).sin6_port) = htons(port);
}

std::string HostAndPort(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN];
  if (address.family() == AF_INET) {
    inet_ntop(AF_INET, &V4(address).sin_addr, text, sizeof text);
    return StrCat(text, ":", ntohs(V4(address).sin_port));
  }
  inet_ntop(AF_INET6, &V6(address).sin6_addr, text, sizeof text);
  std::string zone;
  char name[IF_NAMESIZE];
  if (const uint32_t index = V6(address).sin6_scope_id; index != 0) {
    zone = if_indextoname(index, name) != nullptr ? StrCat("%", name) : StrCat("%", index);
  }
  return StrCat("[", text, zone, "]:", ntohs(V6(address).sin6_port));
}

void TakeZone(SocketAddress& peer, const SocketAddress& own) {
  if (IsLinkLocal(peer) && IsLinkLocal(own)) V6(peer).sin6_scope_id = V6(own).sin6_scope_id;
}

std::string FormatEndpoint(const EndpointAddress& address) {
  std::string text = StrCat(kScheme, HostAndPort(address.tcp));
  if (!address.unix_name.empty()) StrAppend(text, kUnix, address.unix_name);
  return text;
}

Result<EndpointAddress> ParseEndpoint(std::string_view text) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(
        StrCat("\"", text.substr(0, 200), "\" is not an address of an endpoint"));
  };
  if (text.substr(0, kScheme.size()) != kScheme) return bad();
  std::string_view rest = text.substr(kScheme.size());
  EndpointAddress address;
  if (const size_t at = rest.find(kUnix); at != std::string_view::npos) {
    address.unix_name = rest.substr(at + kUnix.size());
    rest = rest.substr(0, at);
  }
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return bad();
  uint16_t port = 0;
  const std::string_view digits = rest.substr(colon + 1);
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  std::optional<SocketAddress> tcp = ParseLiteral(rest.substr(0, colon));
  if (!tcp || parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || !port) {
    return bad();
  }
  SetPort(*tcp, port);
  address.tcp = *tcp;
  return address;
}

SocketAddress UnixAddress(std::string_view name) {
  SocketAddress address;
  auto& unix_address = reinterpret_cast<sockaddr_un&>(address.storage);
  unix_address.sun_family = AF_UNIX;
  // A zero in front: the abstract namespace, where nothing is left behind.
  const size_t size = std::min(name.size(), sizeof unix_address.sun_path - 1);
  std::memcpy(unix_address.sun_path + 1, name.data(), size);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  return address;
}

}  // namespace staffel
