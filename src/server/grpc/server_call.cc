#include "server/grpc/server_call.h"

#include <utility>

#include "base/strings.h"
#include "server/grpc/error.h"
#include "server/http_message.h"

namespace staffel {
namespace {

HttpHeaders Metadata(const grpc::GenericCallbackServerContext& call) {
  HttpHeaders headers;
  for (const auto& [key, value] : call.client_metadata()) {
    headers.emplace_back(std::string(key.data(), key.size()),
                         std::string(value.data(), value.size()));
  }
  return headers;
}

std::string_view Find(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

bool ReadBytes(const grpc::ByteBuffer& buffer, std::string& bytes) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return false;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return true;
}

grpc::ByteBuffer ToBuffer(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

Time Now() { return std::chrono::steady_clock::now(); }

HttpError Overloaded(std::string message) {
  return {.status = 503, .message = std::move(message), .code = "overloaded"};
}

}  // namespace

// What methods hold. The call keeps itself, so that only this can tell that nobody will answer.
class ServerCall::Handle final : public GrpcCall {
 public:
  explicit Handle(std::shared_ptr<ServerCall> call) : call_(std::move(call)) {}
  ~Handle() override {
    call_->Fail({.status = 500, .message = "The call was given up without an answer."});
  }
  const std::string& request_id() const override { return call_->request_id(); }
  void Begin() override { call_->Begin(); }
  bool Write(const google::protobuf::MessageLite& message) override {
    return call_->Write(message);
  }
  void Finish() override { call_->Finish(); }
  void Fail(const HttpError& error) override { call_->Fail(error); }
  void OnDisconnect(std::function<void()> callback) override {
    call_->OnDisconnect(std::move(callback));
  }

 private:
  const std::shared_ptr<ServerCall> call_;
};

grpc::ServerGenericBidiReactor* ServerCall::Accept(std::shared_ptr<GrpcContext> context,
                                                   grpc::GenericCallbackServerContext* call) {
  std::shared_ptr<ServerCall> self(new ServerCall(std::move(context), call));
  self->self_ = self;
  if (std::optional<HttpError> error = self->CheckHead()) {
    self->Fail(*error);
  } else {
    if (self->method_->stream) self->stream_ = self->method_->stream(self->MakeHandle());
    self->ReadNext();
  }
  return self.get();
}

ServerCall::ServerCall(std::shared_ptr<GrpcContext> context,
                       grpc::GenericCallbackServerContext* call)
    : context_(std::move(context)), call_(call) {
  ++context_->calls;
  const auto found = context_->methods.find(call->method());
  if (found != context_->methods.end()) method_ = &found->second;
}

ServerCall::~ServerCall() {
  context_->message_bytes -= received_bytes_;
  --context_->calls;
}

std::optional<HttpError> ServerCall::CheckHead() {
  const HttpHeaders headers = Metadata(*call_);
  request_id_ = RequestIdFor(Find(headers, "x-request-id"));
  call_->AddInitialMetadata("x-request-id", request_id_);
  if (!(method_ != nullptr && method_->open) && !context_->keys.Admits(headers)) {
    return HttpError{
        .status = 401,
        .message = "A valid API key is needed: send the metadata 'authorization: Bearer KEY'.",
        .code = "invalid_api_key"};
  }
  if (method_ == nullptr) {
    return HttpError{.status = 501,
                     .message = StrCat("There is no method ", call_->method().substr(0, 200),
                                       "; server reflection lists what there is."),
                     .code = "unknown_method"};
  }
  if (method_->quick) return std::nullopt;
  if (context_->calls > context_->options.calls_max) {
    return Overloaded("The server has too many calls; try again.");
  }
  return context_->UnavailableError();
}

std::shared_ptr<GrpcCall> ServerCall::MakeHandle() {
  return std::make_shared<Handle>(shared_from_this());
}

void ServerCall::Start(const std::function<void()>& operation) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (finished_) return;
    ++starting_;
  }
  operation();
  std::unique_lock<std::mutex> lock(mutex_);
  --starting_;
  Proceed(lock);
}

void ServerCall::ReadNext() {
  Start([this] { StartRead(&received_); });
}

void ServerCall::OnReadDone(bool ok) {
  if (!ok) return TakeEnd();
  std::string bytes;
  const bool readable = ReadBytes(received_, bytes);
  received_.Clear();
  if (!readable) {
    return Fail({.status = 400, .message = "The request message cannot be decompressed."});
  }
  // A stream's bytes are those of its latest message: earlier ones have been handled.
  context_->message_bytes += bytes.size() - received_bytes_;
  received_bytes_ = bytes.size();
  if (context_->message_bytes > context_->options.messages_bytes_max) {
    return Fail(Overloaded("The requests in progress are too large together; try again."));
  }
  TakeMessage(std::move(bytes));
}

void ServerCall::TakeEnd() {
  if (method_->handle) {
    return Fail({.status = 400, .message = "The call has no request message."});
  }
  Run([self = shared_from_this()] {
    std::shared_ptr<GrpcStreamHandler> stream;
    {
      std::lock_guard<std::mutex> lock(self->mutex_);
      stream = std::move(self->stream_);
    }
    if (stream != nullptr) stream->OnEnd();
  });
}

void ServerCall::TakeMessage(std::string bytes) {
  if (method_->stream) {
    return Run([self = shared_from_this(), bytes = std::move(bytes)]() mutable {
      std::shared_ptr<GrpcStreamHandler> stream;
      {
        std::lock_guard<std::mutex> lock(self->mutex_);
        stream = self->stream_;
      }
      if (stream == nullptr) return;
      stream->OnMessage(std::move(bytes));
      self->ReadNext();
    });
  }
  Run([method = method_, handle = MakeHandle(), bytes = std::move(bytes)]() mutable {
    method->handle(std::move(bytes), std::move(handle));
  });
}

void ServerCall::Run(std::function<void()> task) {
  if (method_->quick) return task();
  context_->runner->Post(std::move(task));
}

void ServerCall::Begin() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (begun_ || status_ || cancelled_) return;
    begun_ = true;
  }
  Start([this] { StartSendInitialMetadata(); });
}

bool ServerCall::Write(const google::protobuf::MessageLite& message) {
  grpc::ByteBuffer buffer = ToBuffer(message);
  std::unique_lock<std::mutex> lock(mutex_);
  if (status_ || cancelled_) return false;
  queue_bytes_ += buffer.Length();
  queue_.push_back(std::move(buffer));
  // However large a message is, the client could not have begun to take the next one before.
  if (queue_bytes_ - queue_.front().Length() > context_->options.buffer_bytes_max) {
    // What gRPC has is left to it; the status follows.
    queue_.resize(writing_ ? 1 : 0);
    status_ = GrpcStatusOf(
        {.status = 413, .message = "The client takes messages too slowly.", .code = "slow_client"});
    WatchLastWrites();
  } else if (writing_ && Now() - write_began_ > context_->options.write_timeout) {
    CutOff();
  }
  const bool goes_on = !status_ && !cancelled_;
  Proceed(lock);
  return goes_on;
}

void ServerCall::Finish() { End(grpc::Status::OK, std::nullopt); }

void ServerCall::Fail(const HttpError& error) {
  std::optional<int> retry_ms;
  if (const auto delay = RetryDelay(error)) retry_ms = static_cast<int>(delay->count());
  End(GrpcStatusOf(error), retry_ms);
}

void ServerCall::End(grpc::Status status, std::optional<int> retry_ms) {
  std::function<void()> dropped;  // outside of the lock
  std::unique_lock<std::mutex> lock(mutex_);
  if (status_) return;
  dropped = std::move(on_disconnect_);
  on_disconnect_ = nullptr;
  if (retry_ms) call_->AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(*retry_ms));
  status_ = std::move(status);
  if (!queue_.empty() && !cancelled_) WatchLastWrites();
  Proceed(lock);
}

// The work is done, so that no further message can notice a client that takes none.
void ServerCall::WatchLastWrites() {
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(std::chrono::system_clock::now() + context_->options.write_timeout,
              [weak = weak_from_this()](bool expired) {
                const std::shared_ptr<ServerCall> self = weak.lock();
                if (!expired || self == nullptr) return;
                std::lock_guard<std::mutex> lock(self->mutex_);
                self->CutOff();
              });
}

void ServerCall::CutOff() {
  if (self_ == nullptr) return;  // after OnDone there is nothing to cancel
  cancelled_ = true;
  call_->TryCancel();
}

void ServerCall::Proceed(std::unique_lock<std::mutex>& lock) {
  if (finished_ || writing_ || starting_ > 0) return;
  if (cancelled_) queue_.clear();
  if (!queue_.empty()) {
    writing_ = true;
    begun_ = true;
    write_began_ = Now();
    // With the end known, both go out together.
    const bool last = status_ && queue_.size() == 1;
    if (last) {
      finished_ = true;
      code_ = status_->error_code();
    }
    const grpc::ByteBuffer* front = &queue_.front();
    lock.unlock();
    if (last) {
      StartWriteAndFinish(front, grpc::WriteOptions(), *status_);
    } else {
      StartWrite(front);
    }
    return;
  }
  if (!status_) return;
  finished_ = true;
  code_ = status_->error_code();
  lock.unlock();
  ServerBidiReactor::Finish(*status_);
}

void ServerCall::OnWriteDone(bool ok) {
  std::unique_lock<std::mutex> lock(mutex_);
  writing_ = false;
  if (!queue_.empty()) {
    queue_bytes_ -= queue_.front().Length();
    queue_.pop_front();
  }
  // The connection is broken; OnCancel comes as well.
  if (!ok) queue_.clear();
  Proceed(lock);
}

void ServerCall::OnDisconnect(std::function<void()> callback) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (status_ && !cancelled_) return;
    if (!cancelled_) {
      std::swap(on_disconnect_, callback);
      return;
    }
  }
  callback();
}

void ServerCall::OnCancel() {
  std::function<void()> callback;
  std::unique_lock<std::mutex> lock(mutex_);
  cancelled_ = true;
  callback = std::move(on_disconnect_);
  on_disconnect_ = nullptr;
  if (!status_) {
    const bool late = call_->deadline() <= std::chrono::system_clock::now();
    status_ = late ? grpc::Status(grpc::DEADLINE_EXCEEDED, "The deadline has passed.")
                   : grpc::Status(grpc::CANCELLED, "The client has cancelled the call.");
  }
  Proceed(lock);
  if (lock.owns_lock()) lock.unlock();
  if (callback) callback();
}

void ServerCall::OnDone() {
  if (context_->metrics != nullptr) {
    context_->metrics->CountGrpcCall(method_ != nullptr ? method_->path : "other",
                                     GrpcCodeName(code_));
  }
  std::shared_ptr<ServerCall> self;
  std::shared_ptr<GrpcStreamHandler> stream;
  std::unique_ptr<grpc::Alarm> alarm;
  std::function<void()> dropped;
  // They end without the lock, this object last.
  std::lock_guard<std::mutex> lock(mutex_);
  dropped = std::move(on_disconnect_);
  alarm = std::move(alarm_);
  stream = std::move(stream_);
  self = std::move(self_);
}

}  // namespace staffel
