#include "server/grpc/server.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <utility>

#include "base/strings.h"
#include "server/grpc/context.h"
#include "server/grpc/health.h"
#include "server/grpc/reflection.h"
#include "server/grpc/server_call.h"

namespace staffel {
namespace {

constexpr int kKeepaliveMs = 60'000;         // a silent client is asked whether it lives
constexpr int kKeepaliveTimeoutMs = 20'000;  // and is gone without an answer
constexpr int kClientPingsMs = 10'000;       // more often is an attack
constexpr int kHandshakeMs = 20'000;
constexpr int kMetadataBytesMax = 64 << 10;

class Service final : public grpc::CallbackGenericService {
 public:
  explicit Service(std::shared_ptr<GrpcContext> context) : context_(std::move(context)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override {
    return ServerCall::Accept(context_, call);
  }

 private:
  const std::shared_ptr<GrpcContext> context_;
};

std::string Address(std::string host, int port) {
  if (host.find(':') != host.npos && host[0] != '[') host = StrCat("[", host, "]");
  return StrCat(host, ":", port);
}

void SetArguments(const GrpcServerOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(
      std::min<size_t>(options.message_bytes_max, std::numeric_limits<int>::max())));
  builder.SetMaxSendMessageSize(-1);
  // gRPC unpacks without a limit, so that a small message could take any memory.
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  // Else a second server on the port would get a share of the connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.calls_max);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kClientPingsMs);
}

}  // namespace

std::optional<HttpError> GrpcContext::UnavailableError() {
  if (available) return std::nullopt;
  std::lock_guard<std::mutex> lock(mutex);
  return HttpError{.status = 503,
                   .message = unavailable_reason,
                   .code = "unavailable",
                   .headers = {{"Retry-After", "2"}}};
}

bool GrpcContext::Healthy() {
  if (!available) return false;
  std::function<Status()> ask;
  {
    std::lock_guard<std::mutex> lock(mutex);
    ask = health;
  }
  return !ask || ask().ok();
}

struct GrpcServer::Impl {
  Impl(GrpcServerOptions options, TaskRunner* runner, Metrics* metrics)
      : context(std::make_shared<GrpcContext>(std::move(options), runner, metrics)),
        health(std::make_shared<GrpcHealth>(context)),
        service(context) {}

  const std::shared_ptr<GrpcContext> context;
  const std::shared_ptr<GrpcHealth> health;
  Service service;
  std::unique_ptr<grpc::Server> server;
  std::vector<std::string> addresses;
};

GrpcServer::GrpcServer(GrpcServerOptions options, TaskRunner* runner, Metrics* metrics)
    : impl_(std::make_unique<Impl>(std::move(options), runner, metrics)) {
  for (GrpcMethod& method : impl_->health->Methods()) Handle(std::move(method));
  for (GrpcMethod& method : ReflectionMethods(impl_->context)) Handle(std::move(method));
  AddService("grpc.health.v1.Health");
  AddService("grpc.reflection.v1.ServerReflection");
}

GrpcServer::~GrpcServer() { Shutdown(Duration::zero()); }

void GrpcServer::Handle(GrpcMethod method) {
  impl_->context->methods[method.path] = std::move(method);
}

void GrpcServer::AddService(std::string name) {
  impl_->context->services.push_back(std::move(name));
}

Status GrpcServer::Start() {
  GrpcContext& context = *impl_->context;
  const GrpcServerOptions& options = context.options;
  STAFFEL_ASSIGN_OR_RETURN(context.keys, ApiKeys::Make(options.api_keys));
  grpc::ServerBuilder builder;
  std::vector<int> ports(options.hosts.size(), 0);
  std::string wanted;
  for (size_t i = 0; i < options.hosts.size(); ++i) {
    const std::string address = Address(options.hosts[i], options.port);
    StrAppend(wanted, i > 0 ? ", " : "", address);
    builder.AddListeningPort(
        address, options.credentials ? options.credentials : grpc::InsecureServerCredentials(),
        &ports[i]);
  }
  SetArguments(options, builder);
  builder.RegisterCallbackGenericService(&impl_->service);
  impl_->server = builder.BuildAndStart();
  if (impl_->server == nullptr) {
    return absl::FailedPreconditionError(
        StrCat("cannot listen on ", wanted,
               " for gRPC; is another server there? Choose another --grpc-port"));
  }
  for (size_t i = 0; i < options.hosts.size(); ++i) {
    impl_->addresses.push_back(Address(options.hosts[i], ports[i]));
  }
  return absl::OkStatus();
}

std::vector<std::string> GrpcServer::addresses() const { return impl_->addresses; }

void GrpcServer::SetUnavailable(std::string reason) {
  {
    std::lock_guard<std::mutex> lock(impl_->context->mutex);
    impl_->context->unavailable_reason = std::move(reason);
  }
  impl_->context->available = false;
  impl_->health->Notify();
}

void GrpcServer::SetAvailable(std::function<Status()> health) {
  {
    std::lock_guard<std::mutex> lock(impl_->context->mutex);
    impl_->context->health = std::move(health);
  }
  impl_->context->available = true;
  impl_->health->Notify();
}

void GrpcServer::Shutdown(Duration deadline) {
  if (impl_->server == nullptr) return;
  SetUnavailable("The server is stopping.");
  impl_->health->Stop();
  impl_->server->Shutdown(std::chrono::system_clock::now() + deadline);
  impl_->server.reset();
}

bool GrpcServer::healthy() const { return impl_->context->Healthy(); }

int GrpcServer::open_calls() const { return impl_->context->calls; }

}  // namespace staffel
