// One client connection: a state machine on one I/O thread with at most one read, one write and one
// timer outstanding.
//
//   kHead -> kBody -> kAnswer -> kHead ...      (keep-alive; pipelined requests wait in the buffer)
//                        |-> kLinger -> kClosed (a refusal that must arrive before the close)
//
// While an answer is computed the socket is read on, so that a client that goes away is noticed. An
// idle connection holds no buffers: it waits for readability.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include "server/http_context.h"
#include "server/http_error.h"
#include "server/http_message.h"
#include "server/http_response.h"

namespace staffel {

class HttpConnection;
using StreamSocket = boost::asio::generic::stream_protocol::socket;

// An I/O thread and its connections. Writers of answers keep it alive: they post to it.
struct IoWorker {
  explicit IoWorker(std::shared_ptr<HttpContext> shared) : context(std::move(shared)) {}

  const std::shared_ptr<HttpContext> context;
  boost::asio::io_context io{1};
  std::unordered_set<HttpConnection*> connections;  // of this thread only
};

// A body in a string. Unlike Beast's string_body it does not reserve what Content-Length promises.
struct GrowingBody {
  using value_type = std::string;

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      error = {};
      size_t before = body_.size();
      for (auto buffer : boost::beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(buffer.data()), buffer.size());
      }
      return body_.size() - before;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // `peer`: the client's address, for the log.
  HttpConnection(std::shared_ptr<IoWorker> worker, StreamSocket socket, std::string peer);
  ~HttpConnection();

  // All of these on the worker's thread.
  void Start();
  // Drops the connection; a request in progress is cancelled.
  void Abort();
  // Closes it unless a request has begun.
  void CloseIfIdle();

 private:
  enum class Phase : uint8_t { kHead, kBody, kAnswer, kLinger, kClosed };
  using Parser = boost::beast::http::request_parser<GrowingBody>;

  // Reading (http_connection.cc).
  void WaitReadable();
  void OnReadable(boost::system::error_code error);
  // Takes what the socket has, up to a share. False: the connection is broken (and closed).
  bool ReadAvailable();
  void Discard();  // of kLinger: what is read
  // Runs the state machine as far as the buffer allows, then waits for more.
  void Advance();
  void ParseHead();
  bool ParseBody();  // false: the body ended, well or badly

  // One request (http_request.cc).
  void OnHead();
  void ReadHead();  // from the parser into the members below
  // What is wrong with the head, in this order: framing, key, availability, route, size.
  std::optional<HttpError> CheckRequest();
  void BeginBody();
  bool CountBody();  // against the limit of all bodies; false: refused
  void Dispatch();
  void BeginAnswer();  // makes state_
  // Answers an error; closes the connection afterwards if some of the request is unread.
  void Fail(HttpError error);

  // Writing and time-outs (http_connection.cc).
  void Flush();
  void OnWritten(boost::system::error_code error, size_t bytes);
  void WriteSome();
  void FinishAnswer(const ResponseState::View& view);
  void EndConnection();
  void Close();
  // Closes without sending what is unsent, and frees the kernel's copy of it.
  void Drop(const char* why);
  void LogRequest(const ResponseState::View& view, bool complete);
  Time Due() const;
  void ArmTimer();
  void OnTimer();

  const std::shared_ptr<IoWorker> worker_;
  HttpContext& context_;
  StreamSocket socket_;
  boost::asio::steady_timer timer_;
  const std::string peer_;

  Phase phase_ = Phase::kHead;
  bool reading_ = false, writing_ = false, eof_ = false;
  bool armed_ = false;
  Time armed_at_, deadline_, progress_at_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;

  // Of the request in progress.
  RequestHead head_;
  std::string method_;
  std::optional<RequestTarget> target_;
  RouteMatch match_;
  ResponseTraits traits_;
  Time started_at_;
  size_t body_counted_ = 0;
  bool unread_body_ = false, streaming_ = false;
  std::shared_ptr<ResponseState> state_;

  std::string out_;  // being written
  size_t out_offset_ = 0, answer_bytes_ = 0;
};

}  // namespace staffel
