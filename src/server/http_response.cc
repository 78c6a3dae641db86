#include "server/http_response.h"

#include <algorithm>
#include <ctime>

#include "server/http_error.h"
#include "server/http_message.h"
#include "spdlog/spdlog.h"

namespace staffel {
namespace {

constexpr std::string_view kPing = ": ping\n\n";
constexpr std::string_view kLastChunk = "0\r\n\r\n";

bool HasHeader(const HttpHeaders& headers, std::string_view name) {
  return std::any_of(headers.begin(), headers.end(),
                     [&](const auto& header) { return EqualsIgnoringCase(header.first, name); });
}

HttpError AbandonedError() {
  return {.status = 500,
          .message = "The server dropped this request without an answer.",
          .code = "internal_error"};
}

}  // namespace

ResponseState::ResponseState(ResponseTraits traits, std::function<void()> notify,
                             std::function<bool()> draining,
                             std::function<size_t(std::string_view)> send)
    : traits_(std::move(traits)),
      notify_(std::move(notify)),
      draining_(std::move(draining)),
      keep_alive_(traits_.keep_alive),
      send_(std::move(send)) {}

void ResponseState::AppendHead(int status, HttpHeaders headers) {
  status_ = status;
  keep_alive_ = keep_alive_ && !draining_();
  if ((status == 429 || status == 503) && !HasHeader(headers, "retry-after")) {
    headers.emplace_back("Retry-After", "1");
  }
  headers.insert(headers.end(), traits_.headers.begin(), traits_.headers.end());
  headers.emplace_back("x-request-id", traits_.request_id);
  headers.emplace_back("Date", HttpDate(std::time(nullptr)));
  if (!keep_alive_) {
    headers.emplace_back("Connection", "close");
  } else if (traits_.version == 10) {
    headers.emplace_back("Connection", "keep-alive");
  }
  pending_ += FormatHead(status, headers);
}

void ResponseState::AppendStreamData(std::string_view data) {
  if (traits_.version == 10) {
    pending_ += data;
  } else {
    AppendChunk(pending_, data);
  }
}

void ResponseState::AppendFramed(std::string_view data, std::string_view name) {
  framed_.clear();
  if (framing_ == StreamFraming::kEvents) {
    AppendEvent(framed_, data, name);
  } else {
    framed_ += data;
    framed_ += '\n';
  }
  AppendStreamData(framed_);
}

void ResponseState::AppendStreamEnd() {
  if (traits_.version != 10) pending_ += kLastChunk;
  phase_ = Phase::kComplete;
}

bool ResponseState::SendPending() {
  if (!send_) return false;
  const size_t bytes = send_(pending_);
  if (bytes > 0) {
    bytes_sent_ += bytes;
    sent_at_ = std::chrono::steady_clock::now();
    pending_.erase(0, bytes);
  }
  return pending_.empty();
}

void ResponseState::Notify(std::unique_lock<std::mutex>& lock, std::function<void()> garbage) {
  bool first = !std::exchange(notified_, true);
  lock.unlock();
  if (first) notify_();
}

void ResponseState::Send(int status, std::string_view content_type, std::string_view body,
                         const HttpHeaders& headers) {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kWaiting) {
    if (phase_ != Phase::kGone) spdlog::error("A request was answered twice; {} ignored.", status);
    return;
  }
  HttpHeaders all;
  if (status != 204) {
    all.emplace_back("Content-Type", content_type);
    all.emplace_back("Content-Length", std::to_string(body.size()));
  }
  all.insert(all.end(), headers.begin(), headers.end());
  AppendHead(status, std::move(all));
  if (!traits_.head_only && status != 204) pending_ += body;
  phase_ = Phase::kComplete;
  Notify(lock, std::exchange(on_disconnect_, nullptr));
}

void ResponseState::BeginStream(const HttpHeaders& headers, StreamFraming framing) {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kWaiting) {
    if (phase_ != Phase::kGone) spdlog::error("A request was answered twice; stream ignored.");
    return;
  }
  framing_ = framing;
  const char* type = framing == StreamFraming::kEvents ? "text/event-stream; charset=utf-8"
                                                       : "application/x-ndjson";
  HttpHeaders all = {{"Content-Type", type},
                     {"Cache-Control", "no-cache"},
                     {"X-Accel-Buffering", "no"}};  // nginx passes events on at once
  if (traits_.version == 10) {
    keep_alive_ = false;  // the end of the stream is the end of the connection
  } else {
    all.emplace_back("Transfer-Encoding", "chunked");
  }
  all.insert(all.end(), headers.begin(), headers.end());
  AppendHead(200, std::move(all));
  phase_ = Phase::kStreaming;
  Notify(lock);
}

bool ResponseState::WriteEvent(std::string_view data, std::string_view name) {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kStreaming || overflowed_) return false;
  if (in_flight_ + pending_.size() > traits_.buffer_bytes_max) {
    overflowed_ = true;
    lock.unlock();
    notify_();  // in any case: the connection takes nothing while its write is stuck
    return false;
  }
  const bool is_next = in_flight_ == 0 && pending_.empty();
  AppendFramed(data, name);
  if (is_next && SendPending()) return true;
  Notify(lock);
  return true;
}

void ResponseState::EndStream() {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kStreaming) return;
  AppendStreamEnd();
  Notify(lock, std::exchange(on_disconnect_, nullptr));
}

void ResponseState::OnDisconnect(std::function<void()> callback) {
  std::unique_lock lock(mutex_);
  if (phase_ == Phase::kGone) {
    lock.unlock();
    callback();
    return;
  }
  // What is replaced, or comes too late, dies after the lock is gone.
  if (phase_ != Phase::kComplete) std::swap(callback, on_disconnect_);
}

void ResponseState::Abandon() {
  std::unique_lock lock(mutex_);
  if (phase_ == Phase::kWaiting) {
    lock.unlock();
    HttpError error = AbandonedError();
    Send(error.status, "application/json", traits_.error_shape(error), error.headers);
  } else if (phase_ == Phase::kStreaming) {
    AppendFramed(traits_.error_shape(AbandonedError()), {});
    AppendStreamEnd();
    Notify(lock, std::exchange(on_disconnect_, nullptr));
  }
}

ResponseState::View ResponseState::Look() const {
  std::lock_guard lock(mutex_);
  return {phase_, overflowed_, keep_alive_, status_, bytes_sent_, sent_at_};
}

ResponseState::View ResponseState::Take(std::string& out) {
  std::lock_guard lock(mutex_);
  notified_ = false;
  out.swap(pending_);
  in_flight_ += out.size();
  return {phase_, overflowed_, keep_alive_, status_, bytes_sent_, sent_at_};
}

void ResponseState::Sent(size_t bytes) {
  std::lock_guard lock(mutex_);
  in_flight_ -= bytes;
}

void ResponseState::Ping() {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kStreaming || framing_ != StreamFraming::kEvents) return;
  if (in_flight_ + pending_.size() > 0) return;
  AppendStreamData(kPing);
  Notify(lock);
}

void ResponseState::Detach() {
  std::lock_guard lock(mutex_);
  send_ = nullptr;
}

void ResponseState::Disconnect() {
  std::unique_lock lock(mutex_);
  send_ = nullptr;
  if (phase_ == Phase::kComplete || phase_ == Phase::kGone) return;
  phase_ = Phase::kGone;
  pending_ = std::string();
  std::function<void()> callback = std::exchange(on_disconnect_, nullptr);
  lock.unlock();
  if (callback) callback();
}

}  // namespace staffel
