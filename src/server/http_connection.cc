#include "server/http_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "server/http_cors.h"
#include "spdlog/spdlog.h"

namespace staffel {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr size_t kReadBytes = 16 << 10;
// After so many bytes another connection gets its turn.
constexpr size_t kTurnBytes = 256 << 10;
// Requests that a client sends ahead of its answers; more stay in the kernel.
constexpr size_t kPipelineBytesMax = 64 << 10;
constexpr size_t kBodyBytesPerSecondMin = 16 << 10;

Time Now() { return std::chrono::steady_clock::now(); }

// What a body may take beyond the time-out.
Duration BodyAllowance(size_t bytes) {
  return std::chrono::milliseconds(bytes * 1000 / kBodyBytesPerSecondMin);
}

// `line`: the first line that was not parsed.
HttpError ParseError(error_code error, bool in_request_line, std::string_view line) {
  if (error == http::error::header_limit) {
    return in_request_line ? HttpError{.status = 414, .message = "The request target is too long."}
                           : HttpError{.status = 431, .message = "The headers are too large."};
  }
  if (error == http::error::body_limit) {
    return {.status = 413, .message = "The body is too large.", .code = "request_too_large"};
  }
  if (error == http::error::bad_version && HasHttpVersion(line)) {
    return {.status = 505, .message = "The server speaks HTTP/1.1 and HTTP/1.0."};
  }
  return {.status = 400, .message = StrCat("The request is not HTTP/1.1: ", error.message(), ".")};
}

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<IoWorker> worker, StreamSocket socket,
                               std::string peer)
    : worker_(std::move(worker)),
      context_(*worker_->context),
      socket_(std::move(socket)),
      timer_(worker_->io),
      peer_(std::move(peer)),
      buffer_(context_.options.limits.header_bytes_max + kPipelineBytesMax) {
  context_.connections++;
}

HttpConnection::~HttpConnection() {
  if (state_) state_->Detach();
  context_.connections--;
  if (!context_.draining) return;
  std::lock_guard lock(context_.drain_mutex);
  context_.drained.notify_all();
}

void HttpConnection::Start() {
  worker_->connections.insert(this);
  if (context_.draining) return Close();
  error_code ignored;
  socket_.non_blocking(true, ignored);
  deadline_ = Now() + context_.options.timeouts.header;
  Advance();
}

// ---- Reading

void HttpConnection::WaitReadable() {
  if (phase_ == Phase::kClosed) return;
  ArmTimer();
  // An idle client, or one that waits for its answer, may be one of thousands.
  if (buffer_.size() == 0 && phase_ != Phase::kBody) buffer_.shrink_to_fit();
  bool full = phase_ == Phase::kAnswer && buffer_.size() >= kPipelineBytesMax;
  if (reading_ || eof_ || full) return;
  reading_ = true;
  socket_.async_wait(net::socket_base::wait_read,
                     [self = shared_from_this()](error_code error) { self->OnReadable(error); });
}

void HttpConnection::OnReadable(error_code error) {
  reading_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error) return Abort();
  if (ReadAvailable()) Advance();
}

bool HttpConnection::ReadAvailable() {
  size_t taken = 0;
  while (taken < kTurnBytes) {
    size_t room = std::min(kReadBytes, buffer_.max_size() - buffer_.size());
    if (phase_ == Phase::kAnswer && buffer_.size() >= kPipelineBytesMax) room = 0;
    if (room == 0) return true;
    error_code error;
    size_t bytes = socket_.read_some(buffer_.prepare(room), error);
    if (error == net::error::would_block || error == net::error::try_again) return true;
    if (error == net::error::eof) {
      eof_ = true;
      return true;
    }
    if (error) {
      Abort();
      return false;
    }
    buffer_.commit(bytes);
    taken += bytes;
    if (phase_ == Phase::kLinger) Discard();
    if (phase_ == Phase::kBody && !ParseBody()) return phase_ != Phase::kClosed;
    if (bytes < room) return true;
  }
  return true;
}

void HttpConnection::Advance() {
  if (phase_ == Phase::kHead) ParseHead();
  if (phase_ == Phase::kBody) ParseBody();
  switch (phase_) {
    case Phase::kHead:
    case Phase::kBody:
      // A request that was cut off, or none.
      if (eof_) return Close();
      break;
    case Phase::kAnswer:
      // The answer was complete before the client left: it may still be read.
      if (eof_ && state_->Look().phase != ResponseState::Phase::kComplete) return Abort();
      break;
    case Phase::kLinger:
      if (eof_) return Close();
      break;
    case Phase::kClosed:
      return;
  }
  WaitReadable();
}

void HttpConnection::ParseHead() {
  if (!parser_) {
    // Empty lines before a request are skipped (RFC 9112, 2.2).
    auto data = static_cast<const char*>(buffer_.data().data());
    size_t blank = 0;
    while (blank < buffer_.size() && (data[blank] == '\r' || data[blank] == '\n')) blank++;
    buffer_.consume(blank);
    if (buffer_.size() == 0) return;
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(context_.options.limits.header_bytes_max));
    parser_->body_limit(boost::none);
    deadline_ = Now() + context_.options.timeouts.header;
  }
  error_code error;
  buffer_.consume(parser_->put(buffer_.data(), error));
  if (error == http::error::need_more) return;
  if (!error) return OnHead();
  ReadHead();
  std::string_view rest(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  std::string line(rest.substr(0, rest.find("\r\n")));
  Fail(ParseError(error, parser_->get().target().empty(), line));
}

bool HttpConnection::ParseBody() {
  error_code error;
  while (!parser_->is_done() && buffer_.size() > 0 && !error) {
    buffer_.consume(parser_->put(buffer_.data(), error));
  }
  if (error == http::error::need_more) error = {};
  bool stuck = buffer_.size() == buffer_.max_size();  // a chunk header or trailers without end
  if (!error && stuck) error = http::error::bad_chunk;
  if (error) {
    Fail(ParseError(error, false, ""));
    return false;
  }
  if (!CountBody()) return false;
  if (!parser_->is_done()) return true;
  Dispatch();
  return false;
}

// ---- Writing

void HttpConnection::Flush() {
  if (phase_ == Phase::kClosed || !state_) return;
  ResponseState::View view = writing_ ? state_->Look() : state_->Take(out_);
  if (view.overflowed) return Drop("reads its stream too slowly");
  if (writing_) return;
  streaming_ = view.phase == ResponseState::Phase::kStreaming;
  if (out_.empty()) {
    if (view.phase == ResponseState::Phase::kComplete) return FinishAnswer(view);
    return ArmTimer();
  }
  writing_ = true;
  progress_at_ = Now();
  WriteSome();
  ArmTimer();
}

void HttpConnection::WriteSome() {
  socket_.async_write_some(net::buffer(out_.data() + out_offset_, out_.size() - out_offset_),
                           [self = shared_from_this()](error_code error, size_t bytes) {
                             self->OnWritten(error, bytes);
                           });
}

void HttpConnection::OnWritten(error_code error, size_t bytes) {
  if (phase_ == Phase::kClosed) return;
  if (error) return Abort();
  progress_at_ = Now();
  out_offset_ += bytes;
  answer_bytes_ += bytes;
  state_->Sent(bytes);
  if (out_offset_ < out_.size()) return WriteSome();
  writing_ = false;
  out_.clear();
  out_offset_ = 0;
  Flush();
}

void HttpConnection::FinishAnswer(const ResponseState::View& view) {
  LogRequest(view, true);
  context_.body_bytes -= std::exchange(body_counted_, 0);
  state_.reset();
  streaming_ = false;
  out_ = std::string();
  parser_.reset();
  if (!view.keep_alive) return EndConnection();
  phase_ = Phase::kHead;
  deadline_ = Now() + context_.options.timeouts.idle;
  if (context_.draining) CloseIfIdle();
  Advance();
}

void HttpConnection::EndConnection() {
  error_code error;
  bool unread = unread_body_ || buffer_.size() > 0 || socket_.available(error) > 0;
  if (eof_ || error || !unread) return Close();
  // Closing now would reset the connection, and the client might lose the answer for that.
  socket_.shutdown(net::socket_base::shutdown_send, error);
  phase_ = Phase::kLinger;
  started_at_ = Now();
  Discard();
  WaitReadable();
}

void HttpConnection::Discard() {
  const Duration linger = context_.options.timeouts.linger;
  deadline_ = std::min(Now() + linger, started_at_ + 6 * linger);
  buffer_.consume(buffer_.size());
}

void HttpConnection::CloseIfIdle() {
  if (phase_ == Phase::kHead && !parser_ && buffer_.size() == 0) Close();
}

void HttpConnection::Abort() {
  if (phase_ == Phase::kClosed) return;
  std::shared_ptr<ResponseState> state = state_;
  if (state) LogRequest(state->Look(), false);
  Close();
  if (state) state->Disconnect();
}

void HttpConnection::Drop(const char* why) {
  spdlog::warn("{} {}: client {}; dropped.", peer_, traits_.request_id, why);
  error_code ignored;
  socket_.set_option(net::socket_base::linger(true, 0), ignored);
  Abort();
}

void HttpConnection::Close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  worker_->connections.erase(this);
  context_.body_bytes -= std::exchange(body_counted_, 0);
  timer_.cancel();
  if (state_) state_->Detach();
  error_code ignored;
  socket_.close(ignored);
  state_.reset();
  parser_.reset();
}

void HttpConnection::LogRequest(const ResponseState::View& view, bool complete) {
  // nginx's number for a client that did not wait.
  const int status = view.status == 0 ? 499 : view.status;
  if (context_.metrics) {
    bool known = match_.handler != nullptr;
    context_.metrics->CountHttpRequest(known ? method_ : "other", match_.route, status);
  }
  auto level = IsOperationsRoute(match_.route) ? spdlog::level::debug : spdlog::level::info;
  if (!spdlog::should_log(level)) return;
  std::chrono::duration<double, std::milli> taken = Now() - started_at_;
  spdlog::log(level, "{} {} {} {} {} bytes {:.1f} ms {}{}", peer_, Printable(method_),
              target_ ? Printable(target_->path) : "-", status, answer_bytes_ + view.bytes_sent,
              taken.count(), traits_.request_id, complete ? "" : " client gone");
}

// ---- Time-outs

Time HttpConnection::Due() const {
  const HttpServerOptions& options = context_.options;
  switch (phase_) {
    case Phase::kBody:
      return deadline_ + BodyAllowance(body_counted_);
    case Phase::kAnswer:
      if (writing_) return progress_at_ + options.timeouts.write;
      if (streaming_ && options.ping_interval > Duration::zero()) {
        return std::max(progress_at_, state_->Look().sent_at) + options.ping_interval;
      }
      return Time::max();
    case Phase::kClosed:
      return Time::max();
    default:
      return deadline_;
  }
}

void HttpConnection::ArmTimer() {
  Time due = Due();
  // A timer that is armed for earlier looks again when it fires: no timer is set for each event.
  if (due == Time::max() || (armed_ && armed_at_ <= due)) return;
  armed_ = true;
  armed_at_ = due;
  timer_.expires_at(due);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->OnTimer();
  });
}

void HttpConnection::OnTimer() {
  armed_ = false;
  if (phase_ == Phase::kClosed) return;
  if (Now() < Due()) return ArmTimer();
  if (phase_ == Phase::kAnswer && writing_) return Drop("has not read for too long");
  if (phase_ == Phase::kAnswer) {
    progress_at_ = Now();
    state_->Ping();
    return ArmTimer();
  }
  bool begun = phase_ == Phase::kBody || (phase_ == Phase::kHead && parser_);
  if (!begun) return Close();
  if (phase_ == Phase::kHead) ReadHead();
  Fail(
      {.status = 408, .message = "The request did not arrive in time.", .code = "request_timeout"});
  Advance();
}

}  // namespace staffel
