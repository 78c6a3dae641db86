#include "transport/grpc/endpoint.h"

#include <arpa/inet.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <netdb.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/strings.h"

namespace staffel {
namespace {

constexpr size_t kStatusBytesMax = 2048;  // gRPC takes 8 KiB of headers and trailers

Result<std::string> ReadPem(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.good() && !file.eof()) {
    return absl::NotFoundError(StrCat("cannot read the PEM file ", path));
  }
  if (text.find("-----BEGIN") == std::string::npos) {
    return absl::InvalidArgumentError(StrCat(path, " is not a PEM file"));
  }
  return text;
}

Result<grpc::SslServerCredentialsOptions::PemKeyCertPair> ReadPair(const TlsFiles& files) {
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  STAFFEL_ASSIGN_OR_RETURN(pair.private_key, ReadPem(files.key));
  STAFFEL_ASSIGN_OR_RETURN(pair.cert_chain, ReadPem(files.certificate));
  return pair;
}

bool SplitHostPort(std::string_view address, std::string& host, std::string& port) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return false;
  host = address.substr(0, colon);
  port = address.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    return host.find(':') != std::string::npos;
  }
  return !host.empty() && host.find_first_of(":[]/ ") == std::string::npos;
}

}  // namespace

void InitGrpcLog() {
  static const bool done = [] {
    gpr_set_log_function([](gpr_log_func_args* message) {
      spdlog::debug("grpc {}:{}: {}", message->file, message->line, message->message);
    });
    // Such as strings in a client's message that are not UTF-8.
    google::protobuf::SetLogHandler(
        [](google::protobuf::LogLevel, const char* file, int line, const std::string& message) {
          spdlog::debug("protobuf {}:{}: {}", file, line, message);
        });
    return true;
  }();
  (void)done;
}

bool IsUnixAddress(std::string_view address) {
  return address.starts_with("unix:") || address.starts_with("unix-abstract:");
}

Status CheckAddress(const std::string& address) {
  if (IsUnixAddress(address)) {
    if (address.back() != ':') return absl::OkStatus();
    return absl::InvalidArgumentError(StrCat("the address ", address, " names no socket"));
  }
  std::string host, port;
  int number = -1;
  if (SplitHostPort(address, host, port)) {
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc() || end != port.data() + port.size()) number = -1;
  }
  if (number >= 0 && number <= 65535) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("\"", address, "\" is not HOST:PORT; IPv6 addresses are written [ADDRESS]:PORT"));
}

std::string WithPort(const std::string& address, int port) {
  return StrCat(address.substr(0, address.rfind(':') + 1), port);
}

Status CheckToken(const std::string& token) {
  for (const char c : token) {
    if (c > 0x20 && c < 0x7F) continue;
    return absl::InvalidArgumentError(
        "the join token may hold printable ASCII characters only, and no spaces");
  }
  return absl::OkStatus();
}

bool EqualSecrets(std::string_view a, std::string_view b) {
  unsigned difference = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned char>(a[i] ^ other);
  }
  return difference == 0;
}

Result<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& files) {
  if (files.empty()) return grpc::InsecureServerCredentials();
  if (files.certificate.empty() || files.key.empty()) {
    return absl::InvalidArgumentError("TLS at the master needs a certificate and its key");
  }
  grpc::SslServerCredentialsOptions options;
  STAFFEL_ASSIGN_OR_RETURN(auto pair, ReadPair(files));
  options.pem_key_cert_pairs.push_back(std::move(pair));
  if (!files.ca.empty()) {
    STAFFEL_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem(files.ca));
    options.client_certificate_request = GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  return grpc::SslServerCredentials(options);
}

Result<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(const TlsFiles& files) {
  if (files.empty()) return grpc::InsecureChannelCredentials();
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError("a certificate and its key are given both or not at all");
  }
  grpc::SslCredentialsOptions options;
  if (!files.certificate.empty()) {
    STAFFEL_ASSIGN_OR_RETURN(auto pair, ReadPair(files));
    options.pem_private_key = std::move(pair.private_key);
    options.pem_cert_chain = std::move(pair.cert_chain);
  }
  if (!files.ca.empty()) {
    STAFFEL_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem(files.ca));
  }
  return grpc::SslCredentials(options);
}

std::string PeerAddress(const std::string& grpc_peer) {
  if (IsUnixAddress(grpc_peer)) return "unix socket";
  const size_t colon = grpc_peer.find(':');
  std::string address;
  for (size_t i = colon + 1; i < grpc_peer.size(); ++i) {  // percent-encoded
    unsigned char byte = 0;
    if (grpc_peer[i] == '%' && i + 2 < grpc_peer.size() &&
        std::from_chars(&grpc_peer[i + 1], &grpc_peer[i + 3], byte, 16).ptr == &grpc_peer[i + 3]) {
      address += static_cast<char>(byte);
      i += 2;
    } else {
      address += grpc_peer[i];
    }
  }
  return address;
}

std::string LocalAddressTowards(const std::string& peer) {
  std::string host, port;
  if (!SplitHostPort(peer, host, port)) return "";
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return "";
  // Connecting a datagram socket sends nothing: it asks for the route.
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  char text[NI_MAXHOST] = "";
  if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0) {
    getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0,
                NI_NUMERICHOST);
  }
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return text;
}

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message().substr(0, kStatusBytesMax)));
}

std::string FormatSeconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

grpc::ByteBuffer ToBuffer(std::string_view bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return grpc::ByteBuffer(&slice, 1);
}

std::string ToString(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return "";
  std::string bytes;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

}  // namespace staffel
