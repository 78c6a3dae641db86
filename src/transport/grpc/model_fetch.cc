#include "transport/grpc/model_fetch.h"

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "transport/grpc/endpoint.h"
#include "transport/proto/cluster_codec.h"

namespace staffel {
namespace {

// The master reads from a disk that may be slow, or from a file system across a network.
constexpr auto kPieceTime = std::chrono::seconds(60);

// One call, driven step by step by the thread that reads.
class Fetch {
 public:
  Fetch(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context)
      : stub_(channel),
        context_(context),
        call_(stub_.PrepareCall(context, kReadModelMethod, &queue_)) {}
  ~Fetch() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  Status Run(const ModelRequest& request, const ModelFetch::Sink& sink) {
    int64_t left = 0;
    for (const ModelRange& range : request.ranges) left += range.size;
    call_->StartCall(this);
    bool ok = Wait();
    if (ok) {
      call_->WriteLast(ToBuffer(SerializeModelRequest(request)), grpc::WriteOptions(), this);
      ok = Wait();
    }
    Status error;
    while (ok && error.ok()) {
      grpc::ByteBuffer piece;
      call_->Read(&piece, this);
      ok = Wait();
      if (ok) error = Take(piece, left, sink);
    }
    if (!error.ok()) context_->TryCancel();
    grpc::Status status;
    call_->Finish(&status, this);
    Wait();
    if (!error.ok()) return error;
    if (late_) return absl::UnavailableError("the master sent no bytes of the model for 60 s");
    if (!status.ok()) return FromMaster(status);
    if (left == 0) return absl::OkStatus();
    return absl::DataLossError(StrCat("the master sent ", left, " bytes of the model too few"));
  }

 private:
  // Whether the operation succeeded.
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kPieceTime) ==
        grpc::CompletionQueue::TIMEOUT) {
      late_ = true;
      context_->TryCancel();
      queue_.Next(&tag, &ok);
    }
    return ok;
  }
  static Status Take(const grpc::ByteBuffer& piece, int64_t& left, const ModelFetch::Sink& sink) {
    STAFFEL_ASSIGN_OR_RETURN(const std::string data, ParseModelBytes(ToString(piece)));
    if (static_cast<int64_t>(data.size()) > left) {
      return absl::DataLossError("the master sent more bytes of the model than were asked for");
    }
    left -= static_cast<int64_t>(data.size());
    return sink(
        absl::Span<const uint8_t>(reinterpret_cast<const uint8_t*>(data.data()), data.size()));
  }
  static Status FromMaster(const grpc::Status& status) {
    const std::string what =
        StrCat("the master gave no bytes of the model: ", status.error_message());
    switch (status.error_code()) {
      case grpc::StatusCode::NOT_FOUND:
      case grpc::StatusCode::OUT_OF_RANGE:
      case grpc::StatusCode::UNAUTHENTICATED:
      case grpc::StatusCode::INVALID_ARGUMENT:
      case grpc::StatusCode::DATA_LOSS:
        return Status(static_cast<absl::StatusCode>(status.error_code()), what);
      default:
        return absl::UnavailableError(what);
    }
  }

  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  grpc::ClientContext* const context_;
  const std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool late_ = false;
};

}  // namespace

Status ModelFetch::Read(const std::string& digest, absl::Span<const ModelRange> ranges,
                        const Sink& sink) {
  if (ranges.size() > MasterLink::kReadRangesMax) {
    return absl::InvalidArgumentError(StrCat(ranges.size(), " ranges in one read; at most ",
                                             MasterLink::kReadRangesMax, " are allowed"));
  }
  // The master closes connections that were idle for long; a call that meets the end of one fails
  // before its first byte.
  int64_t taken = 0;
  const Sink counting = [&](absl::Span<const uint8_t> piece) {
    taken += static_cast<int64_t>(piece.size());
    return sink(piece);
  };
  const ModelRequest request{digest, {ranges.begin(), ranges.end()}};
  Status status = ReadOnce(request, counting);
  if (absl::IsUnavailable(status) && taken == 0) status = ReadOnce(request, counting);
  return status;
}

Status ModelFetch::ReadOnce(const ModelRequest& request, const Sink& sink) {
  grpc::ClientContext context;
  if (!token_.empty()) context.AddMetadata(kTokenKey, token_);
  std::shared_ptr<grpc::Channel> channel;
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) return absl::UnavailableError("the link to the master has ended");
    if (channel_ == nullptr) channel_ = make_channel_();
    channel = channel_;
    reads_.insert(&context);
  }
  const Status status = Fetch(channel, &context).Run(request, sink);
  std::lock_guard lock(mutex_);
  reads_.erase(&context);
  return status;
}

void ModelFetch::Cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : reads_) context->TryCancel();
}

}  // namespace staffel
