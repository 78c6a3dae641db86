// The data plane of CPUs: links of our own between the ranks of a replica, shared memory within a
// machine and TCP (IPv4 and IPv6) between machines. Collectives in communicator.h's rank order give
// the bits of comm/local.
//
// The port speaks to nobody who does not know the epoch's secret: a connection proves that it does
// (HMAC-SHA256 over both sides' nonces) before it gets memory or is waited for, its peer proves the
// same to it, and bytes on the way are not encrypted. A connection that does not greet in time or
// says anything else is closed; at most `greeting_max` are being greeted at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "staffel/communicator.h"

namespace staffel {

struct MeshOptions {
  // Where peers reach this process, and where it listens: an IPv4 or IPv6 address ("10.0.0.1",
  // "::1", "fe80::1%eth0", with or without brackets) or the name of an interface ("eth0": its first
  // IPv4 address, else its first IPv6 address).
  std::string host = "127.0.0.1";
  // The first free port of [port, port_last] is taken; 0: any.
  uint16_t port = 0, port_last = 0;
  // A waiting call looks this long before it sleeps; 0: sleeps at once.
  int spin_us = 40;
  // Of shared memory, for each direction of a link; touched as it is used. A message that fits is
  // sent without waiting for its receiver.
  size_t ring_bytes = 8 << 20;
  bool shared_memory = true;  // false: TCP to all, also to peers of this machine
  // Of strangers: until a connection has said who it is; and how long one that came before this
  // side's Form is kept.
  std::chrono::milliseconds greeting_timeout{2000}, parking_timeout{30000};
  int greeting_max = 64;
};

// InvalidArgument: no such address or interface; Unavailable: no port is free.
Result<std::unique_ptr<CommEndpoint>> MakeMeshEndpoint(const MeshOptions& options);

// What GroupSpec::machines holds for this process: equal for two processes that can share memory
// (same kernel, and same IPC, PID and network namespaces).
std::string MachineName();

}  // namespace staffel
