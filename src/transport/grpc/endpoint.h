// Addresses, credentials and statuses at the border to gRPC, for both ends of the control plane.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>
#include <string_view>

#include "staffel/clock.h"
#include "staffel/status.h"

namespace staffel {

// Paths of PEM files; all empty: no TLS. At the master: certificate and key, and `ca` if workers
// must show certificates of it. At a worker: `ca` that the master's certificate must be of (empty
// beside others: the system's), and its own certificate and key if the master asks for one.
struct TlsFiles {
  std::string certificate, key, ca;
  bool empty() const { return certificate.empty() && key.empty() && ca.empty(); }
};

// The method names of proto/cluster.proto, and the metadata that carries the join token.
inline constexpr char kJoinMethod[] = "/staffel.proto.Cluster/Join";
inline constexpr char kReadModelMethod[] = "/staffel.proto.Cluster/ReadModel";
inline constexpr char kTokenKey[] = "x-staffel-token";

// Messages of gRPC and protobuf go to our log, at debug level: their matter reaches us as statuses.
// Any thread.
void InitGrpcLog();

// "HOST:PORT", "[ADDRESS]:PORT" (IPv6), "unix:PATH", "unix-abstract:NAME". InvalidArgument says
// what is wrong with others.
Status CheckAddress(const std::string& address);
bool IsUnixAddress(std::string_view address);
// "HOST:PORT" with another port.
std::string WithPort(const std::string& address, int port);

// InvalidArgument: printable ASCII is all that metadata carries.
Status CheckToken(const std::string& token);
// In a time that depends on the lengths only.
bool EqualSecrets(std::string_view a, std::string_view b);

// NotFound, InvalidArgument: a file that cannot be read, or one of a pair that is missing.
Result<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& files);
Result<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(const TlsFiles& files);

// A name of gRPC's for a connection's other end as people write it: "10.0.0.7:41822",
// "[fd00::7]:41822", "unix socket".
std::string PeerAddress(const std::string& grpc_peer);
// The own address by which the kernel reaches `peer` (as PeerAddress writes it); empty: none.
std::string LocalAddressTowards(const std::string& peer);

// Codes are the same in both; the message is cut to what a trailer carries.
grpc::Status ToGrpcStatus(const Status& status);

// "1.0 s"
std::string FormatSeconds(Duration duration);

grpc::ByteBuffer ToBuffer(std::string_view bytes);
// The bytes of a buffer, which must be valid; empty for one that gRPC cannot decompress.
std::string ToString(const grpc::ByteBuffer& buffer);

}  // namespace staffel
