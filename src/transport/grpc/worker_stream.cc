#include "transport/grpc/worker_stream.h"

#include <utility>

#include "base/strings.h"
#include "transport/grpc/endpoint.h"
#include "transport/proto/cluster_codec.h"

namespace staffel {
namespace {

// How long a call that is to end may take to send what waits.
constexpr auto kFinishTime = std::chrono::milliseconds(250);
// A worker that takes nothing off its stream is as good as dead; its heartbeats may still come.
constexpr size_t kQueuedMax = 4096;

Time Now() { return std::chrono::steady_clock::now(); }

}  // namespace

std::shared_ptr<WorkerStream> WorkerStream::Create(std::unique_ptr<ServerCall> call,
                                                   WorkerStreamOwner* owner,
                                                   ProtocolVersion protocol) {
  ServerCall& accepted = *call;
  std::shared_ptr<WorkerStream> stream(new WorkerStream(std::move(call), owner, protocol));
  accepted.handler = stream;
  accepted.Read();
  return stream;
}

WorkerStream::WorkerStream(std::unique_ptr<ServerCall> call, WorkerStreamOwner* owner,
                           ProtocolVersion protocol)
    : call_(std::move(call)),
      owner_(owner),
      protocol_(protocol),
      peer_(PeerAddress(call_->context.peer())),
      is_local_(IsUnixAddress(call_->context.peer())),
      last_heard_(Now()),
      progress_(last_heard_) {}

void WorkerStream::Send(const grpc::ByteBuffer& message) {
  bool stuck = false;
  {
    std::lock_guard lock(mutex_);
    if (finish_.has_value() || finished_) return;
    sent_since_ping_ = true;
    if (!writing_) {
      writing_ = true;
      call_->Write(message);
    } else if (queue_.size() < kQueuedMax) {
      queue_.push_back(message);
    } else {
      queue_.clear();
      stuck = true;
    }
  }
  if (stuck) {
    End(absl::ResourceExhaustedError(StrCat("took none of ", kQueuedMax, " messages")),
        grpc::Status(grpc::StatusCode::ABORTED, "the worker does not read its messages"));
  }
}

void WorkerStream::Ping(const grpc::ByteBuffer& ping) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(sent_since_ping_, false) || writing_) return;
  }
  Send(ping);
}

void WorkerStream::End(Status reason, const grpc::Status& status) {
  std::lock_guard lock(mutex_);
  if (finish_.has_value() || finished_) return;
  finish_ = status;
  finish_by_ = Now() + kFinishTime;
  end_reason_ = std::move(reason);
  FinishIfIdle();
}

void WorkerStream::FinishIfIdle() {
  if (writing_ || finished_ || !finish_.has_value()) return;
  finished_ = true;
  call_->Finish(*finish_);
}

void WorkerStream::CutOff(Time now) {
  std::lock_guard lock(mutex_);
  if (finish_.has_value() && now > finish_by_) call_->context.TryCancel();
}

void WorkerStream::OnWritten(bool ok) {
  std::lock_guard lock(mutex_);
  writing_ = false;
  if (finished_) return;
  if (ok && !queue_.empty()) {
    writing_ = true;
    call_->Write(queue_.front());
    queue_.pop_front();
    return;
  }
  queue_.clear();
  FinishIfIdle();
}

void WorkerStream::OnRead(bool ok) {
  if (!ok) {
    Status reason;
    {
      std::lock_guard lock(mutex_);
      reason = end_reason_;
    }
    if (reason.ok()) {
      reason = absl::UnavailableError(leaving_.empty() ? std::string("ended its connection")
                                                       : StrCat("has left: ", leaving_));
    }
    ReportEnd(reason);
    End(reason, grpc::Status::OK);  // the worker has closed its side; close ours
    return;
  }
  last_heard_ = Now();
  const std::string bytes = ToString(call_->received);
  call_->received.Clear();
  if (reported_) {
    // Ending: what still comes is for nobody, but is read so that the end is seen.
  } else if (!said_hello_) {
    TakeHello(bytes);
  } else {
    TakeMessage(bytes);
  }
  std::lock_guard lock(mutex_);
  if (!finished_) call_->Read();
}

void WorkerStream::OnOver() {
  Status reason;
  {
    std::lock_guard lock(mutex_);
    finished_ = true;
    queue_.clear();
    reason = end_reason_;
  }
  ReportEnd(reason.ok() ? absl::UnavailableError("ended its connection") : reason);
}

void WorkerStream::TakeHello(const std::string& bytes) {
  said_hello_ = true;
  Result<Hello> hello = ParseHello(bytes, protocol_);
  if (!hello.ok()) return Refuse(hello.status());
  hello_ = *std::move(hello);
  owner_->OnHello(*this);
}

void WorkerStream::Join(WorkerId id) { id_ = id; }

void WorkerStream::TakeMessage(const std::string& bytes) {
  if (!joined()) return;
  Result<std::optional<WorkerMessage>> message = ParseWorkerMessage(bytes);
  if (!message.ok()) {
    return Refuse(absl::InvalidArgumentError(
        StrCat("sent what makes no sense: ", std::string(message.status().message()))));
  }
  if (!message->has_value()) return;
  NoteProgress(**message);
  owner_->OnWorkerMessage(*this, **std::move(message));
}

void WorkerStream::NoteProgress(const WorkerMessage& message) {
  if (const auto* heartbeat = std::get_if<Heartbeat>(&message)) {
    if (heartbeat->step == step_ && heartbeat->collective == collective_) return;
    step_ = heartbeat->step;
    collective_ = heartbeat->collective;
    progress_ = last_heard_;
  } else if (const auto* outcome = std::get_if<StepOutcome>(&message)) {
    step_ = outcome->step;
    progress_ = last_heard_;
  } else if (const auto* leaving = std::get_if<Leaving>(&message)) {
    leaving_ = leaving->reason.empty() ? "it gave no reason" : leaving->reason;
  }
}

void WorkerStream::Refuse(const Status& status) {
  ReportEnd(status);
  End(status, ToGrpcStatus(status));
}

void WorkerStream::ReportEnd(const Status& reason) {
  if (std::exchange(reported_, true)) return;
  owner_->OnStreamEnd(*this, reason);
}

std::string WorkerStream::Describe(std::string_view what, Time now) const {
  std::string text =
      StrCat("worker ", hello_.name, " on host ", hello_.host, " (", peer_, ") ", what);
  if (step_ > 0 || collective_ > 0) {
    StrAppend(text, "; last finished step ", step_, ", collective ", collective_, ", ",
              FormatSeconds(now - progress_), " ago");
  } else {
    StrAppend(text, "; it had finished no step");
  }
  return text;
}

}  // namespace staffel
