// The master's end of the control plane: a gRPC server that workers dial (proto/cluster.proto).
// One thread drives the completion queue and calls the handler; a message is written by the thread
// that sends it. Whoever is no worker with the right token and protocol is turned away with a
// sentence and holds nothing of others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "staffel/cluster.h"
#include "staffel/status.h"
#include "transport/grpc/endpoint.h"
#include "transport/grpc/model_reads.h"

namespace staffel {

struct ClusterServerOptions {
  // See CheckAddress; port 0 chooses one. "[::]:PORT" takes IPv4 too. The first is address().
  std::vector<std::string> listen;
  // Workers must show it. Empty is refused unless workers show certificates (tls.ca), every
  // address is a Unix socket, or without_token says that anyone may join.
  std::string token;
  bool without_token = false;
  TlsFiles tls;  // of the addresses that are no Unix sockets
  ProtocolVersion protocol = kClusterProtocol;
  int heartbeat_ms = 50;
  int dead_after_ms = 1000;     // a worker that says nothing for so long is gone
  int hello_timeout_ms = 3000;  // from the connection, and from the call, to the Hello
  ModelReader read_model;       // empty: workers have the files
};

// Binds all addresses. InvalidArgument: options that cannot be; Unavailable: an address that cannot
// be listened on. `Start` lets workers in.
Result<std::unique_ptr<ClusterServer>> MakeClusterServer(ClusterServerOptions options);

}  // namespace staffel
