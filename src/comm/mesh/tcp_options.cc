#include "comm/mesh/tcp_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/fd.h"

namespace staffel {
namespace {

void SetBuffer(int socket, int forced, int asked) {
  if (setsockopt(socket, SOL_SOCKET, forced, &kTcpBufferBytes, sizeof(int)) == 0) return;
  setsockopt(socket, SOL_SOCKET, asked, &kTcpBufferBytes, sizeof(int));
}

void SetBuffers(int socket) {
  SetBuffer(socket, SO_SNDBUFFORCE, SO_SNDBUF);
  SetBuffer(socket, SO_RCVBUFFORCE, SO_RCVBUF);
}

bool Has(int socket, int option) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  return getsockopt(socket, SOL_SOCKET, option, &bytes, &size) == 0 && bytes >= kTcpBufferBytes;
}

}  // namespace

// Tried on a socket of no use: asking for less than the kernel's own tuning reaches would stop it.
bool HasLargeTcpBuffers() {
  static const bool has = [] {
    const Fd trial(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!trial.ok()) return false;
    SetBuffers(trial.get());
    return Has(trial.get(), SO_SNDBUF) && Has(trial.get(), SO_RCVBUF);
  }();
  return has;
}

void SetTcpOptions(int socket) {
  const int one = 1, idle_s = 5, interval_s = 5, probes = 3;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  // BBR, where it is the default, is up to 3 times slower for transfers of 1 MB and more.
  setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  if (HasLargeTcpBuffers()) SetBuffers(socket);
}

}  // namespace staffel
