#include "app/data_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

namespace staffel {
namespace {

bool IsLoopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "[::1]" ||
         address.starts_with("::ffff:127.");
}

std::string Text(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

// The own address of the way to the world. Connecting a datagram socket sends nothing; the target
// is of the range for documentation (RFC 5737), which every default route covers.
std::string DefaultRouteAddress() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(9);
  inet_pton(AF_INET, "192.0.2.1", &target.sin_addr);
  sockaddr_in own{};
  socklen_t size = sizeof own;
  std::string address;
  if (connect(fd, reinterpret_cast<sockaddr*>(&target), sizeof target) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0) {
    address = Text(reinterpret_cast<sockaddr*>(&own), size);
  }
  close(fd);
  return IsLoopback(address) ? "" : address;
}

bool IsLinkLocal(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

std::vector<std::string> OwnAddresses() {
  std::vector<std::string> addresses;
  const auto add = [&](std::string address) {
    if (address.empty() || std::count(addresses.begin(), addresses.end(), address) > 0) return;
    addresses.push_back(std::move(address));
  };
  add(DefaultRouteAddress());
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family ||
          (each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0 ||
          IsLinkLocal(each->ifa_addr)) {
        continue;
      }
      add(Text(each->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
    }
  }
  return addresses;
}

std::string ChooseDataAddress(const std::string& interface, const std::string& towards_master,
                              const std::vector<std::string>& addresses) {
  if (!interface.empty()) return interface;
  if (towards_master.empty()) return "127.0.0.1";
  if (IsLoopback(towards_master) && !addresses.empty()) return addresses.front();
  return towards_master;
}

}  // namespace staffel
