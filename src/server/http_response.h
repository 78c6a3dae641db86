// One answer between the route that writes it (any thread) and the connection that sends it (one
// I/O thread): a bounded buffer with a phase. An event with nothing unsent before it goes out on
// the thread that writes it, as far as the socket takes it: on a busy machine each wake-up of
// another thread may cost milliseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "server/http.h"
#include "server/http_error.h"
#include "staffel/clock.h"

namespace staffel {

// What the answer needs to know of its request.
struct ResponseTraits {
  int version = 11;        // of the request; HTTP/1.0 clients get streams without chunks
  bool head_only = false;  // HEAD: no body is sent
  bool keep_alive = true;  // what the client asked for
  std::string request_id;  // sent as x-request-id
  HttpHeaders headers;     // added to every answer
  size_t buffer_bytes_max = 2 << 20;
  ErrorShape error_shape = ErrorBody;
};

class ResponseState {
 public:
  // `notify` wakes the connection: any thread, never with the lock held; once until the next Take,
  // and once more when the buffer is full. `draining`: the server is going down, so the connection
  // is not kept. `send`: gives the socket bytes and returns how many it took, without waiting; any
  // thread, with the lock held, never after Disconnect or Detach. Null: all is left to the
  // connection.
  ResponseState(ResponseTraits traits, std::function<void()> notify, std::function<bool()> draining,
                std::function<size_t(std::string_view)> send = nullptr);

  // Of the route; see ResponseWriter.
  void Send(int status, std::string_view content_type, std::string_view body,
            const HttpHeaders& headers);
  void BeginStream(const HttpHeaders& headers, StreamFraming framing = StreamFraming::kEvents);
  bool WriteEvent(std::string_view data, std::string_view name = {});
  void EndStream();
  void OnDisconnect(std::function<void()> callback);
  // The writer is gone: answers 500, or an error event within a stream, if nothing ended it.
  void Abandon();

  // Of the connection.
  enum class Phase : uint8_t { kWaiting, kStreaming, kComplete, kGone };
  struct View {
    Phase phase;
    bool overflowed;  // the client reads too slowly: drop it
    bool keep_alive;  // known when there is a status
    int status;       // 0: none yet
    // Of what the writers sent themselves:
    size_t bytes_sent;
    Time sent_at;
  };
  View Look() const;
  // Moves what is to be sent into `out`, which is empty.
  View Take(std::string& out);
  // `bytes` of what was taken have been sent.
  void Sent(size_t bytes);
  // Adds a comment, so that the silence ends, if this is a stream of events with nothing unsent.
  void Ping();
  // The socket is about to be closed.
  void Detach();
  // The client is gone; runs the callback, if any, on this thread.
  void Disconnect();

 private:
  // With the lock held:
  void AppendHead(int status, HttpHeaders headers);
  void AppendStreamData(std::string_view data);
  void AppendFramed(std::string_view data, std::string_view name);
  void AppendStreamEnd();
  // Whether the socket took all that is pending.
  bool SendPending();
  // Leaves the lock, then notifies and lets `garbage` die.
  void Notify(std::unique_lock<std::mutex>& lock, std::function<void()> garbage = nullptr);

  const ResponseTraits traits_;
  const std::function<void()> notify_;
  const std::function<bool()> draining_;

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  Phase phase_ = Phase::kWaiting;
  StreamFraming framing_ = StreamFraming::kEvents;
  bool notified_ = false, overflowed_ = false, keep_alive_;
  int status_ = 0;
  std::string pending_;   // to be taken
  size_t in_flight_ = 0;  // taken, not sent
  std::function<size_t(std::string_view)> send_;
  size_t bytes_sent_ = 0;  // by send_
  Time sent_at_{};
  std::string framed_;  // scratch
  std::function<void()> on_disconnect_;
};

// What the route holds.
class ResponseHandle final : public ResponseWriter {
 public:
  explicit ResponseHandle(std::shared_ptr<ResponseState> state) : state_(std::move(state)) {}
  ~ResponseHandle() override { state_->Abandon(); }

  void Send(int status, std::string content_type, std::string body, HttpHeaders headers) override {
    state_->Send(status, content_type, body, headers);
  }
  void BeginStream(HttpHeaders headers, StreamFraming framing) override {
    state_->BeginStream(headers, framing);
  }
  bool WriteEvent(std::string_view data, std::string_view name) override {
    return state_->WriteEvent(data, name);
  }
  void EndStream() override { state_->EndStream(); }
  void OnDisconnect(std::function<void()> callback) override {
    state_->OnDisconnect(std::move(callback));
  }

 private:
  const std::shared_ptr<ResponseState> state_;
};

}  // namespace staffel
