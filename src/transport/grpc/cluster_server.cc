#include "transport/grpc/cluster_server.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "base/strings.h"
#include "base/thread.h"
#include "transport/grpc/server_call.h"
#include "transport/grpc/step_lane.h"
#include "transport/grpc/worker_stream.h"
#include "transport/proto/cluster_codec.h"

namespace staffel {
namespace {

// A worker's largest message are the log-probabilities of a long prompt.
constexpr int kReceiveBytesMax = 64 << 20;
constexpr size_t kStrangersMax = 256;    // Join calls without a Hello yet
constexpr int kCallsPerConnection = 16;  // a worker has one
constexpr auto kGoodbyeTime = std::chrono::milliseconds(300);
// gRPC's own keepalive, under the heartbeats: for connections that have none.
constexpr int kKeepaliveMs = 2000;
constexpr int kIdleConnectionMs = 30000;

Time Now() { return std::chrono::steady_clock::now(); }

class RefusedCall final : public CallHandler {
 public:
  explicit RefusedCall(std::unique_ptr<ServerCall> call) : call_(std::move(call)) {}
  void OnRead(bool) override {}
  void OnWritten(bool) override {}
  void OnOver() override {}

 private:
  const std::unique_ptr<ServerCall> call_;
};

void Refuse(std::unique_ptr<ServerCall> call, const Status& status) {
  spdlog::warn("refused a call from {}: {}", PeerAddress(call->context.peer()),
               std::string(status.message()));
  ServerCall& refused = *call;
  refused.handler = std::make_shared<RefusedCall>(std::move(call));
  refused.Finish(ToGrpcStatus(status));
}

class GrpcClusterServer final : public ClusterServer, private WorkerStreamOwner {
 public:
  explicit GrpcClusterServer(ClusterServerOptions options)
      : options_(std::move(options)), ping_(ToBuffer(SerializePing())) {
    if (options_.read_model) reads_ = std::make_unique<ModelReads>(options_.read_model);
  }
  ~GrpcClusterServer() override;
  Status Listen();

  void Start(ClusterHandler* handler) override;
  void Send(WorkerId worker, const MasterMessage& message) override;
  void SendToAll(const std::vector<WorkerId>& workers, const MasterMessage& message) override;
  void Disconnect(WorkerId worker, const Status& reason) override;
  std::string address() const override { return address_; }

 private:
  // A worker that has joined. All its steps take one way, or they would overtake each other.
  struct Joined {
    std::shared_ptr<WorkerStream> stream;
    std::shared_ptr<StepLane> lane;  // null: none
    bool steps_by_stream = false;    // one has gone that way
    bool lane_ended = false;
  };
  using Workers = absl::flat_hash_map<WorkerId, Joined>;

  std::shared_ptr<WorkerStream> Find(WorkerId worker) const;
  void Loop();
  void Dispatch(ServerCall::Tag& tag, bool ok);
  void AcceptNext();
  void Accept(std::unique_ptr<ServerCall> call);
  Status Admit(const ServerCall& call) const;
  void Tick(Time now);
  void CheckSilence(WorkerStream& stream, Time now);
  void CheckLane(WorkerStream& stream);
  void SendStep(WorkerId worker, const std::string& bytes);

  // The lanes' thread.
  bool OnLane(WorkerId worker, std::shared_ptr<StepLane> lane);
  void OnLaneFrame(WorkerId worker, std::string_view bytes);
  void OnLaneEnd(WorkerId worker);

  void OnHello(WorkerStream& stream) override;
  void OnWorkerMessage(WorkerStream& stream, WorkerMessage message) override;
  void OnStreamEnd(WorkerStream& stream, const Status& reason) override;

  const ClusterServerOptions options_;
  const grpc::ByteBuffer ping_;
  std::string address_;
  std::unique_ptr<ModelReads> reads_;
  std::unique_ptr<StepLanes> lanes_;  // null: no worker can be on this machine, or none can be had
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  ClusterHandler* handler_ = nullptr;
  std::thread loop_;
  std::atomic<bool> stopping_ = false;

  // The loop's thread only.
  std::vector<std::weak_ptr<WorkerStream>> streams_;  // all whose call is not over
  std::map<std::string, WorkerId> by_name_;
  size_t strangers_ = 0;
  uint64_t last_worker_ = 0;
  Time last_tick_;

  // Held while the handler is called: workers speak on two threads.
  std::mutex handling_;
  mutable std::mutex mutex_;
  Workers joined_;  // guarded by mutex_; nothing leaves it while handling_ is held by another
};

Status GrpcClusterServer::Listen() {
  grpc::ServerBuilder builder;
  STAFFEL_ASSIGN_OR_RETURN(auto credentials, MakeServerCredentials(options_.tls));
  std::vector<int> ports(options_.listen.size(), 0);
  for (size_t i = 0; i < ports.size(); ++i) {
    const std::string& address = options_.listen[i];
    builder.AddListeningPort(
        address, IsUnixAddress(address) ? grpc::InsecureServerCredentials() : credentials,
        &ports[i]);
  }
  builder.RegisterAsyncGenericService(&service_);
  builder.SetMaxReceiveMessageSize(kReceiveBytesMax);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, options_.hello_timeout_ms);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleConnectionMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  queue_ = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  for (size_t i = 0; i < ports.size(); ++i) {
    if (server_ != nullptr && ports[i] != 0) continue;
    return absl::UnavailableError(StrCat("cannot listen on ", options_.listen[i],
                                         ": the port is in use, or the address not this host's"));
  }
  address_ = options_.listen[0];
  if (!IsUnixAddress(address_)) address_ = WithPort(address_, ports[0]);
  if (std::any_of(options_.listen.begin(), options_.listen.end(),
                  [](const std::string& address) { return IsUnixAddress(address); })) {
    Result<std::unique_ptr<StepLanes>> lanes = StepLanes::Listen();
    if (lanes.ok()) {
      lanes_ = *std::move(lanes);
    } else {
      spdlog::warn("steps of local workers go over gRPC: {}",
                   std::string(lanes.status().message()));
    }
  }
  return absl::OkStatus();
}

void GrpcClusterServer::Start(ClusterHandler* handler) {
  STAFFEL_CHECK(handler_ == nullptr) << "the server is started once";
  handler_ = handler;
  if (lanes_ != nullptr) {
    lanes_->Start({.on_lane = [this](WorkerId worker, auto lane) { return OnLane(worker, lane); },
                   .on_frame = [this](WorkerId worker,
                                      std::string_view bytes) { OnLaneFrame(worker, bytes); },
                   .on_end = [this](WorkerId worker) { OnLaneEnd(worker); }});
  }
  AcceptNext();
  loop_ = std::thread([this] { Loop(); });
}

GrpcClusterServer::~GrpcClusterServer() {
  stopping_ = true;
  if (reads_ != nullptr) reads_->Stop();
  if (lanes_ != nullptr) lanes_->Stop();
  if (server_ != nullptr) {
    Workers joined;
    {
      std::lock_guard lock(mutex_);
      joined = joined_;
    }
    const Status reason = absl::UnavailableError("the master is shutting down");
    for (auto& [id, worker] : joined) worker.stream->End(reason, ToGrpcStatus(reason));
    joined.clear();
    server_->Shutdown(std::chrono::system_clock::now() + kGoodbyeTime);
  }
  if (queue_ == nullptr) return;
  queue_->Shutdown();
  if (loop_.joinable()) {
    loop_.join();
  } else {
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) {
    }
  }
}

// ---- any thread

std::shared_ptr<WorkerStream> GrpcClusterServer::Find(WorkerId worker) const {
  std::lock_guard lock(mutex_);
  const auto it = joined_.find(worker);
  return it == joined_.end() ? nullptr : it->second.stream;
}

void GrpcClusterServer::Send(WorkerId worker, const MasterMessage& message) {
  SendToAll({worker}, message);
}

void GrpcClusterServer::SendToAll(const std::vector<WorkerId>& workers,
                                  const MasterMessage& message) {
  const std::string bytes = SerializeMasterMessage(message);
  if (std::holds_alternative<Step>(message)) {
    for (WorkerId worker : workers) SendStep(worker, bytes);
    return;
  }
  const grpc::ByteBuffer buffer = ToBuffer(bytes);
  for (WorkerId worker : workers) {
    if (auto stream = Find(worker)) stream->Send(buffer);
  }
}

void GrpcClusterServer::SendStep(WorkerId worker, const std::string& bytes) {
  std::shared_ptr<WorkerStream> stream;
  std::shared_ptr<StepLane> lane;
  {
    std::lock_guard lock(mutex_);
    const auto it = joined_.find(worker);
    if (it == joined_.end()) return;
    lane = it->second.lane;
    stream = it->second.stream;
    it->second.steps_by_stream |= lane == nullptr;
  }
  if (lane == nullptr) {
    stream->Send(ToBuffer(bytes));
  } else if (!lane->Send(bytes)) {
    OnLaneEnd(worker);
  }
}

void GrpcClusterServer::Disconnect(WorkerId worker, const Status& reason) {
  auto stream = Find(worker);
  if (stream == nullptr) return;
  // Aborted: the worker may come back, whatever the reason's own code says.
  stream->End(Status(reason.code(), StrCat("was disconnected: ", std::string(reason.message()))),
              ToGrpcStatus(absl::AbortedError(reason.message())));
}

// ---- the loop's thread

void GrpcClusterServer::Loop() {
  NameThread("control");
  PreferShortSlices();
  const auto interval = std::chrono::milliseconds(options_.heartbeat_ms);
  last_tick_ = Now();
  Time next_tick = last_tick_ + interval;
  while (true) {
    void* tag = nullptr;
    bool ok = false;
    const auto until = std::chrono::system_clock::now() + (next_tick - Now());
    const auto next = queue_->AsyncNext(&tag, &ok, until);
    if (next == grpc::CompletionQueue::SHUTDOWN) return;
    if (next == grpc::CompletionQueue::GOT_EVENT) Dispatch(*static_cast<ServerCall::Tag*>(tag), ok);
    const Time now = Now();
    if (now < next_tick) continue;
    Tick(now);
    last_tick_ = now;
    next_tick = now + interval;
  }
}

void GrpcClusterServer::Dispatch(ServerCall::Tag& tag, bool ok) {
  ServerCall& call = *tag.call;
  if (tag.event == ServerCall::Event::kAccepted) {
    std::unique_ptr<ServerCall> accepted(&call);
    if (!ok) return;  // the server ends; `over` does not come for calls that never began
    if (!stopping_) AcceptNext();
    return Accept(std::move(accepted));
  }
  const std::shared_ptr<CallHandler> handler = call.handler;
  switch (tag.event) {
    case ServerCall::Event::kRead:
      handler->OnRead(ok);
      break;
    case ServerCall::Event::kWritten:
      handler->OnWritten(ok);
      break;
    case ServerCall::Event::kOver:
      handler->OnOver();
      break;
    default:
      break;
  }
  if (--call.pending == 0) call.handler.reset();
}

void GrpcClusterServer::AcceptNext() {
  auto* call = new ServerCall;  // comes back with its tag
  service_.RequestCall(&call->context, &call->stream, queue_.get(), queue_.get(), &call->accepted);
}

Status GrpcClusterServer::Admit(const ServerCall& call) const {
  if (stopping_) return absl::UnavailableError("the master is shutting down");
  if (options_.token.empty()) return absl::OkStatus();
  const auto& metadata = call.context.client_metadata();
  const auto it = metadata.find(kTokenKey);
  if (it == metadata.end()) {
    return absl::UnauthenticatedError("this cluster asks for a join token and none was given");
  }
  if (!EqualSecrets(std::string_view(it->second.data(), it->second.size()), options_.token)) {
    return absl::UnauthenticatedError("the join token is not this cluster's");
  }
  return absl::OkStatus();
}

void GrpcClusterServer::Accept(std::unique_ptr<ServerCall> call) {
  if (Status status = Admit(*call); !status.ok()) return Refuse(std::move(call), status);
  const std::string& method = call->context.method();
  if (method == kReadModelMethod) {
    const Status status = reads_ != nullptr
                              ? reads_->Serve(call)
                              : absl::NotFoundError("this master hands out no models");
    if (!status.ok()) Refuse(std::move(call), status);
    return;
  }
  if (method != kJoinMethod) {
    return Refuse(std::move(call), absl::UnimplementedError(StrCat("no such method: ", method)));
  }
  if (strangers_ >= kStrangersMax) {
    return Refuse(std::move(call), absl::ResourceExhaustedError(
                                       "too many connections have not said Hello yet; try again"));
  }
  ++strangers_;
  streams_.push_back(WorkerStream::Create(std::move(call), this, options_.protocol));
}

void GrpcClusterServer::Tick(Time now) {
  std::erase_if(streams_, [](const auto& stream) { return stream.expired(); });
  // Whoever was not running itself (stopped, starved of its core) has not heard what was said.
  const bool stalled = now - last_tick_ > std::chrono::milliseconds(options_.dead_after_ms) / 2;
  for (const auto& weak : std::vector(streams_)) {
    const std::shared_ptr<WorkerStream> stream = weak.lock();
    if (stream == nullptr) continue;
    stream->CutOff(now);
    CheckLane(*stream);
    if (!stalled) CheckSilence(*stream, now);
    if (stream->joined()) stream->Ping(ping_);
  }
  if (reads_ != nullptr) reads_->CutOff(now);
}

void GrpcClusterServer::CheckSilence(WorkerStream& stream, Time now) {
  const Duration silence = now - stream.last_heard();
  const int limit_ms = stream.joined() ? options_.dead_after_ms : options_.hello_timeout_ms;
  if (silence <= std::chrono::milliseconds(limit_ms)) return;
  const std::string seconds = FormatSeconds(silence);
  const Status reason = absl::UnavailableError(StrCat("sent nothing for ", seconds));
  stream.ReportEnd(reason);
  // Aborted: it may come back. Who said no Hello is no worker.
  stream.End(reason, ToGrpcStatus(absl::AbortedError(
                         StrCat("the master heard nothing from this worker for ", seconds))));
}

// A lane ends with its worker's process, or has lost frames.
void GrpcClusterServer::CheckLane(WorkerStream& stream) {
  {
    std::lock_guard lock(mutex_);
    const auto it = joined_.find(stream.id());
    if (it == joined_.end() || !it->second.lane_ended) return;
  }
  const Status reason = absl::UnavailableError("ended its step lane");
  stream.ReportEnd(reason);
  stream.End(reason, ToGrpcStatus(absl::AbortedError("the step lane of this worker has ended")));
}

bool GrpcClusterServer::OnLane(WorkerId worker, std::shared_ptr<StepLane> lane) {
  std::lock_guard lock(mutex_);
  const auto it = joined_.find(worker);
  if (it == joined_.end() || it->second.steps_by_stream) return false;
  it->second.lane = std::move(lane);
  return true;
}

void GrpcClusterServer::OnLaneFrame(WorkerId worker, std::string_view bytes) {
  Result<std::optional<WorkerMessage>> message = ParseWorkerMessage(std::string(bytes));
  if (!message.ok() || !message->has_value() || !std::holds_alternative<StepOutcome>(**message)) {
    return OnLaneEnd(worker);  // nothing else is said here
  }
  std::lock_guard handling(handling_);
  if (Find(worker) != nullptr && !stopping_) handler_->OnMessage(worker, **std::move(message));
}

void GrpcClusterServer::OnLaneEnd(WorkerId worker) {
  std::lock_guard lock(mutex_);
  if (const auto it = joined_.find(worker); it != joined_.end()) it->second.lane_ended = true;
}

void GrpcClusterServer::OnHello(WorkerStream& stream) {
  --strangers_;
  const std::string& name = stream.hello().name;
  if (const auto it = by_name_.find(name); it != by_name_.end()) {
    if (auto old = Find(it->second)) {
      const Status reason = absl::AlreadyExistsError(
          StrCat("was replaced by a newer worker of the same name at ", stream.peer()));
      old->ReportEnd(reason);
      old->End(reason, ToGrpcStatus(absl::AlreadyExistsError(
                           StrCat("another worker named ", name, " has joined from ", stream.peer(),
                                  "; give each worker a name of its own"))));
    }
  }
  const WorkerId id(++last_worker_);
  stream.Join(id);
  by_name_[name] = id;
  {
    std::lock_guard lock(mutex_);
    const auto it = std::find_if(streams_.begin(), streams_.end(),
                                 [&](const auto& weak) { return weak.lock().get() == &stream; });
    joined_[id] = {.stream = it->lock()};
  }
  Welcome welcome{id, options_.heartbeat_ms, options_.dead_after_ms};
  if (lanes_ != nullptr && stream.is_local()) {
    welcome.lane_name = lanes_->name();
    welcome.lane_secret = lanes_->Expect(id);
  }
  Send(id, welcome);
  spdlog::info("worker {} on host {} ({}) joined, staffel {}", name, stream.hello().host,
               stream.peer(), stream.hello().build);
  std::lock_guard handling(handling_);
  if (!stopping_) handler_->OnJoin(id, stream.hello(), stream.peer());
}

void GrpcClusterServer::OnWorkerMessage(WorkerStream& stream, WorkerMessage message) {
  std::lock_guard handling(handling_);
  if (!stopping_) handler_->OnMessage(stream.id(), std::move(message));
}

void GrpcClusterServer::OnStreamEnd(WorkerStream& stream, const Status& reason) {
  const std::string what(reason.message());
  if (!stream.joined()) {
    --strangers_;
    spdlog::warn("refused a worker at {}: {}", stream.peer(), what);
    return;
  }
  if (lanes_ != nullptr) lanes_->Forget(stream.id());
  // Whoever calls the handler for this worker has ended by now, and nobody else will.
  std::lock_guard handling(handling_);
  {
    std::lock_guard lock(mutex_);
    if (const auto it = joined_.find(stream.id()); it != joined_.end()) {
      if (it->second.lane != nullptr) it->second.lane->End();
      joined_.erase(it);
    }
  }
  const auto it = by_name_.find(stream.hello().name);
  if (it != by_name_.end() && it->second == stream.id()) by_name_.erase(it);
  const std::string sentence = stream.Describe(what, Now());
  spdlog::warn("{}", sentence);
  if (stopping_) return;
  handler_->OnGone({stream.id(), Status(reason.code(), sentence)});
}

}  // namespace

Result<std::unique_ptr<ClusterServer>> MakeClusterServer(ClusterServerOptions options) {
  if (options.listen.empty()) {
    return absl::InvalidArgumentError("the cluster needs an address to listen on");
  }
  for (const std::string& address : options.listen) {
    STAFFEL_RETURN_IF_ERROR(CheckAddress(address));
  }
  STAFFEL_RETURN_IF_ERROR(CheckToken(options.token));
  const bool all_unix =
      std::all_of(options.listen.begin(), options.listen.end(),
                  [](const std::string& address) { return IsUnixAddress(address); });
  if (options.token.empty() && !options.without_token && !all_unix && options.tls.ca.empty()) {
    return absl::InvalidArgumentError(
        "a cluster needs a join token, or a CA whose certificates workers must show; "
        "without both anyone who reaches the port could join");
  }
  if (options.heartbeat_ms < 1 || options.dead_after_ms < 2 * options.heartbeat_ms ||
      options.hello_timeout_ms < 1) {
    return absl::InvalidArgumentError(StrCat("a worker cannot be dead after ",
                                             options.dead_after_ms, " ms with a heartbeat every ",
                                             options.heartbeat_ms, " ms"));
  }
  InitGrpcLog();
  auto server = std::make_unique<GrpcClusterServer>(std::move(options));
  STAFFEL_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace staffel
