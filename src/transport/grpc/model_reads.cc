#include "transport/grpc/model_reads.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "base/thread.h"
#include "transport/grpc/endpoint.h"
#include "transport/proto/cluster_codec.h"

namespace staffel {
namespace {

// Large enough that a hop between threads is small beside its copy, small enough that 64 readers
// hold 32 MiB.
constexpr int64_t kPieceBytes = 512 << 10;
constexpr size_t kReadsMax = 64;
// A link that moves 512 KiB in no less than this is of no use; gRPC's keepalive finds dead ones.
constexpr auto kPieceTime = std::chrono::seconds(30);

Time Now() { return std::chrono::steady_clock::now(); }

}  // namespace

class ModelReads::Read final : public CallHandler {
 public:
  Read(ModelReads* reads, std::unique_ptr<ServerCall> call)
      : reads_(reads), call_(std::move(call)), busy_since_(Now()) {}

  static std::shared_ptr<Read> Create(ModelReads* reads, std::unique_ptr<ServerCall> call) {
    ServerCall& accepted = *call;
    auto read = std::make_shared<Read>(reads, std::move(call));
    accepted.handler = read;
    accepted.Read();
    return read;
  }

  void OnRead(bool ok) override {
    if (!ok) return Finish(absl::InvalidArgumentError("no request came"));
    Result<ModelRequest> request = ParseModelRequest(ToString(call_->received));
    call_->received.Clear();
    if (!request.ok()) return Finish(request.status());
    request_ = *std::move(request);
    reads_->Post(std::static_pointer_cast<Read>(call_->handler));
  }
  void OnWritten(bool ok) override {
    if (ok) reads_->Post(std::static_pointer_cast<Read>(call_->handler));
  }
  void OnOver() override {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  void CutOff(Time now) {
    if (now - busy_since_.load() > kPieceTime) call_->context.TryCancel();
  }

  // The reads' thread.
  void SendPiece() {
    while (index_ < request_.ranges.size() && done_ == request_.ranges[index_].size) {
      ++index_;
      done_ = 0;
    }
    if (index_ == request_.ranges.size()) return Finish(absl::OkStatus());
    Result<grpc::ByteBuffer> piece = NextPiece();
    if (!piece.ok()) return Finish(piece.status());
    busy_since_ = Now();
    std::lock_guard lock(mutex_);
    if (!over_) call_->Write(*piece);
  }

 private:
  // Small ranges share a piece: a column cut of a matrix is thousands of them.
  Result<grpc::ByteBuffer> NextPiece() {
    int64_t bytes = 0;
    std::vector<ModelRange> parts;
    while (bytes < kPieceBytes && index_ < request_.ranges.size()) {
      const ModelRange& range = request_.ranges[index_];
      const int64_t size = std::min(range.size - done_, kPieceBytes - bytes);
      parts.push_back({range.offset + done_, size});
      bytes += size;
      done_ += size;
      if (done_ == range.size) {
        ++index_;
        done_ = 0;
      }
    }
    const std::string header = ModelBytesHeader(bytes);
    auto* const data = new uint8_t[bytes];
    const grpc::Slice slices[] = {
        grpc::Slice(header.data(), header.size()),
        grpc::Slice(data, bytes, [](void* owned) { delete[] static_cast<uint8_t*>(owned); })};
    int64_t at = 0;
    for (const ModelRange& part : parts) {
      STAFFEL_RETURN_IF_ERROR(
          reads_->reader_(request_.digest, part.offset, absl::Span<uint8_t>(data + at, part.size)));
      at += part.size;
    }
    return grpc::ByteBuffer(slices, 2);
  }
  void Finish(const Status& status) {
    std::lock_guard lock(mutex_);
    if (over_) return;
    over_ = true;
    call_->Finish(ToGrpcStatus(status));
  }

  ModelReads* const reads_;
  const std::unique_ptr<ServerCall> call_;
  ModelRequest request_;  // constant once posted
  size_t index_ = 0;      // of the range that is being sent
  int64_t done_ = 0;      // of its bytes
  std::atomic<Time> busy_since_;
  std::mutex mutex_;
  bool over_ = false;  // guarded by mutex_
};

ModelReads::ModelReads(ModelReader reader)
    : reader_(std::move(reader)), thread_([this] { Work(); }) {}

ModelReads::~ModelReads() { Stop(); }

void ModelReads::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

Status ModelReads::Serve(std::unique_ptr<ServerCall>& call) {
  std::erase_if(reads_, [](const auto& read) { return read.expired(); });
  if (reads_.size() >= kReadsMax) {
    return absl::ResourceExhaustedError(
        StrCat(kReadsMax, " reads of models are in progress; try again later"));
  }
  reads_.push_back(Read::Create(this, std::move(call)));
  return absl::OkStatus();
}

void ModelReads::CutOff(Time now) {
  for (const auto& read : reads_) {
    if (auto live = read.lock()) live->CutOff(now);
  }
}

void ModelReads::Post(std::shared_ptr<Read> read) {
  {
    std::lock_guard lock(mutex_);
    ready_.push_back(std::move(read));
  }
  wake_.notify_one();
}

void ModelReads::Work() {
  NameThread("model reads");
  while (true) {
    std::shared_ptr<Read> read;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !ready_.empty(); });
      if (stop_) return;
      read = std::move(ready_.front());
      ready_.pop_front();
    }
    read->SendPiece();
  }
}

}  // namespace staffel
