// The worker's end of the control plane: a gRPC client that dials the master (proto/cluster.proto).
// One thread reads and calls the handler, one sends heartbeats; a message is written by the thread
// that sends it. A link lives once: after OnGone its owner makes another
// (transport/grpc/backoff.h).
#pragma once

#include <memory>
#include <string>

#include "staffel/cluster.h"
#include "staffel/status.h"
#include "transport/grpc/endpoint.h"

namespace staffel {

struct MasterLinkOptions {
  std::string master;  // see CheckAddress
  std::string token;   // empty: none
  TlsFiles tls;        // not over a Unix socket
  Hello hello;
  int join_timeout_ms = 3000;  // from Start to Welcome
};

// Dials nobody before Start. InvalidArgument, NotFound: an address, token or file that cannot be
// used.
Result<std::unique_ptr<MasterLink>> MakeMasterLink(MasterLinkOptions options);

}  // namespace staffel
