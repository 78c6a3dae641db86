#include "transport/grpc/master_link.h"

#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <poll.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "base/thread.h"
#include "transport/grpc/model_fetch.h"
#include "transport/grpc/step_lane.h"
#include "transport/proto/cluster_codec.h"

namespace staffel {
namespace {

constexpr auto kTick = std::chrono::milliseconds(50);
constexpr auto kGoodbyeTime = std::chrono::milliseconds(300);
// gRPC's own keepalive, under the heartbeats: for the connection of model reads, which has none.
constexpr int kKeepaliveMs = 2000;

Time Now() { return std::chrono::steady_clock::now(); }

std::shared_ptr<grpc::Channel> Dial(const std::string& address,
                                    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 3000);  // also the time for a connection
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

// Whether dialling again is of no use: the other end has understood, and says no.
bool IsPermanent(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAUTHENTICATED:  // token
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::FAILED_PRECONDITION:  // protocol version
    case grpc::StatusCode::INVALID_ARGUMENT:     // a message that makes no sense
    case grpc::StatusCode::ALREADY_EXISTS:       // another worker has our name
    case grpc::StatusCode::UNIMPLEMENTED:        // no master
      return true;
    default:
      return false;
  }
}

// gRPC tells of a handshake that failed in words only.
bool IsTlsFailure(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return false;
  const std::string& text = status.error_message();
  for (const char* word : {"handshake failed", "handshaker", "certificate", "CERTIFICATE", "SSL"}) {
    if (text.find(word) != text.npos) return true;
  }
  return false;
}

class GrpcMasterLink final : public MasterLink {
 public:
  GrpcMasterLink(MasterLinkOptions options, std::shared_ptr<grpc::ChannelCredentials> credentials)
      : options_(std::move(options)),
        models_([address = options_.master, credentials] { return Dial(address, credentials); },
                options_.token),
        stub_(Dial(options_.master, credentials)) {}
  ~GrpcMasterLink() override;

  void Start(MasterHandler* handler) override;
  void Send(const WorkerMessage& message) override;
  void SetHeartbeat(std::function<Heartbeat()> heartbeat) override {
    heartbeat_ = std::move(heartbeat);
  }
  std::string local_address() const override;
  Status ReadModel(const std::string& digest, absl::Span<const ModelRange> ranges,
                   const std::function<Status(absl::Span<const uint8_t>)>& sink) override {
    return models_.Read(digest, ranges, sink);
  }

 private:
  enum class Event { kStarted, kRead, kWritten, kWritesDone, kFinished };
  static void* Tag(Event event) { return reinterpret_cast<void*>(static_cast<intptr_t>(event)); }

  void Loop();
  void OnEvent(Event event, bool ok);
  void OnMessage(const std::string& bytes);
  void OnWelcome(const Welcome& welcome);
  void CheckSilence();
  void Give(Status reason);  // ends the call for a reason of ours
  void FinishCall();
  void ReportGone();
  void Push(const grpc::ByteBuffer& message);
  void OpenLane(const Welcome& welcome);
  void ReadLane();
  void Deliver(MasterMessage message);
  void Beat();

  const MasterLinkOptions options_;
  ModelFetch models_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  MasterHandler* handler_ = nullptr;
  std::function<Heartbeat()> heartbeat_;
  std::thread loop_, beat_, lane_reader_;
  std::shared_ptr<StepLane> lane_;       // set before lane_reader_ runs
  std::atomic<bool> lane_used_ = false;  // steps have come over it: outcomes go back over it
  std::mutex delivering_;  // held while the handler is called: the master speaks on two threads

  // The loop's thread only.
  grpc::ByteBuffer received_;
  grpc::Status status_;
  Status own_reason_;  // why we ended the call
  bool welcomed_ = false, finishing_ = false;
  Duration patience_;  // for the master's next word
  Time last_heard_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::deque<grpc::ByteBuffer> sends_;  // not yet given to gRPC
  bool writing_ = true;                 // gRPC has one, or is not ready for the first
  bool writes_done_ = false;
  bool closing_ = false;  // by the owner
  bool gone_ = false;
  std::chrono::milliseconds heartbeat_interval_{0};
  std::string local_address_;
};

void GrpcMasterLink::Start(MasterHandler* handler) {
  STAFFEL_CHECK(handler_ == nullptr) << "a link is started once";
  handler_ = handler;
  if (!options_.token.empty()) context_.AddMetadata(kTokenKey, options_.token);
  call_ = stub_.PrepareCall(&context_, kJoinMethod, &queue_);
  sends_.push_back(ToBuffer(SerializeHello(options_.hello)));
  last_heard_ = Now();
  patience_ = std::chrono::milliseconds(options_.join_timeout_ms);
  call_->StartCall(Tag(Event::kStarted));
  loop_ = std::thread([this] { Loop(); });
}

GrpcMasterLink::~GrpcMasterLink() {
  models_.Cancel();
  if (handler_ == nullptr) return;
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    changed_.notify_all();
    if (!writing_ && !gone_) {
      writing_ = true;
      writes_done_ = true;
      call_->WritesDone(Tag(Event::kWritesDone));
    }
    const bool joined = heartbeat_interval_.count() > 0;
    if (joined) changed_.wait_for(lock, kGoodbyeTime, [this] { return gone_; });
  }
  context_.TryCancel();
  loop_.join();
  if (lane_ != nullptr) lane_->End();
  if (lane_reader_.joinable()) lane_reader_.join();
  if (beat_.joinable()) beat_.join();
}

void GrpcMasterLink::Send(const WorkerMessage& message) {
  const std::string bytes = SerializeWorkerMessage(message);
  if (std::holds_alternative<StepOutcome>(message) && lane_used_ && lane_->Send(bytes)) return;
  Push(ToBuffer(bytes));
}

void GrpcMasterLink::Push(const grpc::ByteBuffer& message) {
  std::lock_guard lock(mutex_);
  if (gone_ || closing_) return;
  if (writing_) {
    sends_.push_back(message);
    return;
  }
  writing_ = true;
  call_->Write(message, Tag(Event::kWritten));
}

std::string GrpcMasterLink::local_address() const {
  std::lock_guard lock(mutex_);
  return local_address_;
}

// ---- the loop's thread

void GrpcMasterLink::Loop() {
  NameThread("master link");
  PreferShortSlices();
  Time last_check = Now();
  while (true) {
    void* tag = nullptr;
    bool ok = false;
    const auto until = std::chrono::system_clock::now() + (last_check + kTick - Now());
    const auto next = queue_.AsyncNext(&tag, &ok, until);
    if (next == grpc::CompletionQueue::SHUTDOWN) return ReportGone();
    if (next == grpc::CompletionQueue::GOT_EVENT) {
      OnEvent(static_cast<Event>(reinterpret_cast<intptr_t>(tag)), ok);
      continue;
    }
    // Nothing waits to be read. Whoever was not running itself has not heard what was said.
    const Time now = Now();
    if (now - last_check < patience_ / 2) CheckSilence();
    last_check = now;
  }
}

void GrpcMasterLink::OnEvent(Event event, bool ok) {
  switch (event) {
    case Event::kStarted:
      if (!ok) return FinishCall();
      call_->Read(&received_, Tag(Event::kRead));
      [[fallthrough]];
    case Event::kWritten: {
      std::lock_guard lock(mutex_);
      writing_ = false;
      if (!ok) {
        sends_.clear();
        gone_ = true;
      } else if (!sends_.empty()) {
        writing_ = true;
        call_->Write(sends_.front(), Tag(Event::kWritten));
        sends_.pop_front();
      } else if (closing_ && !writes_done_) {
        writing_ = true;
        writes_done_ = true;
        call_->WritesDone(Tag(Event::kWritesDone));
      }
      return;
    }
    case Event::kWritesDone:
      return;
    case Event::kRead:
      if (!ok) return FinishCall();
      last_heard_ = Now();
      OnMessage(ToString(received_));
      received_.Clear();
      call_->Read(&received_, Tag(Event::kRead));
      return;
    case Event::kFinished:
      queue_.Shutdown();
  }
}

void GrpcMasterLink::OnMessage(const std::string& bytes) {
  Result<std::optional<MasterMessage>> message = ParseMasterMessage(bytes);
  if (!message.ok()) {
    return Give(absl::InvalidArgumentError(
        StrCat("the master sent what makes no sense: ", std::string(message.status().message()))));
  }
  if (!message->has_value()) return;
  const auto* welcome = std::get_if<Welcome>(&**message);
  if (welcomed_ == (welcome != nullptr)) {
    return Give(absl::InvalidArgumentError("the master must say Welcome first, and once"));
  }
  if (welcome != nullptr) OnWelcome(*welcome);
  if (!own_reason_.ok()) return;
  const bool is_welcome = welcome != nullptr;
  Deliver(**std::move(message));
  // Steps may have come over the lane by now; the handler hears Welcome before them.
  if (is_welcome && lane_ != nullptr) lane_reader_ = std::thread([this] { ReadLane(); });
}

void GrpcMasterLink::Deliver(MasterMessage message) {
  std::lock_guard delivering(delivering_);
  {
    std::lock_guard lock(mutex_);
    if (closing_ || gone_) return;
  }
  handler_->OnMessage(std::move(message));
}

void GrpcMasterLink::OnWelcome(const Welcome& welcome) {
  welcomed_ = true;
  patience_ = std::chrono::milliseconds(welcome.dead_after_ms);
  const std::string peer = PeerAddress(context_.peer());
  std::lock_guard lock(mutex_);
  local_address_ = LocalAddressTowards(peer);
  heartbeat_interval_ = std::chrono::milliseconds(welcome.heartbeat_ms);
  beat_ = std::thread([this] { Beat(); });
  if (!welcome.lane_name.empty()) OpenLane(welcome);
}

void GrpcMasterLink::OpenLane(const Welcome& welcome) {
  auto lane = StepLane::Connect(welcome.lane_name, welcome.lane_secret);
  if (!lane.ok()) return spdlog::debug("{}", std::string(lane.status().message()));
  lane_ = *std::move(lane);
}

void GrpcMasterLink::CheckSilence() {
  const Duration silence = Now() - last_heard_;
  if (silence <= patience_ || finishing_ || !own_reason_.ok()) return;
  Give(absl::UnavailableError(
      welcomed_
          ? StrCat("the master at ", options_.master, " sent nothing for ", FormatSeconds(silence))
          : StrCat("no master answered at ", options_.master, " within ", FormatSeconds(silence))));
}

void GrpcMasterLink::Give(Status reason) {
  own_reason_ = std::move(reason);
  context_.TryCancel();
}

void GrpcMasterLink::FinishCall() {
  finishing_ = true;
  call_->Finish(&status_, Tag(Event::kFinished));
}

void GrpcMasterLink::ReportGone() {
  bool closing = false;
  {
    std::lock_guard lock(mutex_);
    gone_ = true;
    closing = closing_;
    sends_.clear();
  }
  changed_.notify_all();
  models_.Cancel();
  if (closing) return;
  bool permanent = !own_reason_.ok() && own_reason_.code() == absl::StatusCode::kInvalidArgument;
  Status reason = own_reason_;
  if (reason.ok() && IsTlsFailure(status_)) {
    // Certificates are renewed while workers run: a later try may succeed.
    reason = absl::UnauthenticatedError(
        StrCat("no TLS with the master at ", options_.master, ": ",
               options_.tls.ca.empty()
                   ? "it shows a certificate and none is checked here; give --tls-ca"
                   : StrCat("its certificate is not signed by --tls-ca ", options_.tls.ca,
                            ", is not for ", "that host, or it refuses --tls-cert"),
               " (", status_.error_message(), ")"));
  } else if (reason.ok()) {
    permanent = IsPermanent(status_.error_code());
    const std::string what = status_.ok() ? "it ended the connection" : status_.error_message();
    reason = Status(status_.ok() ? absl::StatusCode::kUnavailable
                                 : static_cast<absl::StatusCode>(status_.error_code()),
                    StrCat(permanent   ? "refused by the master at "
                           : welcomed_ ? "lost the master at "
                                       : "no connection to the master at ",
                           options_.master, ": ", what));
  }
  std::lock_guard delivering(delivering_);
  handler_->OnGone(reason, permanent);
}

// ---- the lane's thread

void GrpcMasterLink::ReadLane() {
  NameThread("step lane");
  PreferShortSlices();
  bool sound = true;
  const auto take = [&](std::string_view bytes) {
    Result<std::optional<MasterMessage>> message = ParseMasterMessage(std::string(bytes));
    sound &= message.ok() && message->has_value() && std::holds_alternative<Step>(**message);
    if (!sound) return;
    lane_used_ = true;
    Deliver(**std::move(message));
  };
  do {
    pollfd input{lane_->fd(), POLLIN, 0};
    poll(&input, 1, -1);
  } while (lane_->Receive(take) && sound);
  lane_->End();  // the master ends the call of a worker whose lane has ended
}

// ---- the heartbeat's thread

void GrpcMasterLink::Beat() {
  NameThread("heartbeat");
  PreferShortSlices();
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, heartbeat_interval_, [this] { return gone_ || closing_; });
      if (gone_ || closing_) return;
      if (!sends_.empty()) continue;  // what waits says as much
    }
    Push(ToBuffer(SerializeWorkerMessage(heartbeat_ ? heartbeat_() : Heartbeat())));
  }
}

}  // namespace

Result<std::unique_ptr<MasterLink>> MakeMasterLink(MasterLinkOptions options) {
  STAFFEL_RETURN_IF_ERROR(CheckAddress(options.master));
  STAFFEL_RETURN_IF_ERROR(CheckToken(options.token));
  InitGrpcLog();
  const bool unix_socket = IsUnixAddress(options.master);
  STAFFEL_ASSIGN_OR_RETURN(auto credentials,
                           MakeChannelCredentials(unix_socket ? TlsFiles() : options.tls));
  return std::make_unique<GrpcMasterLink>(std::move(options), std::move(credentials));
}

}  // namespace staffel
