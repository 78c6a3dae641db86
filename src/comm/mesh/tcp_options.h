// Options of sockets that carry data between machines.
#pragma once

namespace staffel {

// Of a listener (its connections inherit), or before connecting. Failures leave a connection that
// is slower, not wrong.
void SetTcpOptions(int socket);

// The kernel lets both directions of a connection hold a message of kTcpBufferBytes that nobody
// waits for; needs net.core.wmem_max and rmem_max of that size, or CAP_NET_ADMIN. Otherwise the
// kernel's own tuning applies, and a large message moves while its receiver waits for it.
inline constexpr int kTcpBufferBytes = 8 << 20;
bool HasLargeTcpBuffers();

}  // namespace staffel
