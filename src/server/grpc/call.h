// The seam between the gRPC server (sockets, keys, limits, flow) and the methods: what a method
// gets and how it answers.
#pragma once

#include <google/protobuf/message_lite.h>

#include <functional>
#include <memory>
#include <string>

#include "server/http_error.h"

namespace staffel {

// The answer to one call; all calls from any thread. It ends once, with the first Finish or Fail;
// what comes after that, or after the client has gone, is ignored. A call that is dropped without
// an end fails as our fault.
class GrpcCall {
 public:
  virtual ~GrpcCall() = default;
  virtual const std::string& request_id() const = 0;
  // The client learns now that its call was taken; else with the first message.
  virtual void Begin() = 0;
  // Sends a message. False: the client is gone, or takes messages too slowly (its buffer is full;
  // the call is cancelled): the caller ends the work.
  virtual bool Write(const google::protobuf::MessageLite& message) = 0;
  virtual void Finish() = 0;
  virtual void Fail(const HttpError& error) = 0;
  // `callback` runs once, on a thread of gRPC's, when the client cancels, its deadline passes or
  // its connection breaks before the end; within this call if that is so already. Replaces an
  // earlier one; dropped with the end. It must not hold the call.
  virtual void OnDisconnect(std::function<void()> callback) = 0;
};

// What takes the messages of a client that streams. One call at a time; none after the end of the
// call.
class GrpcStreamHandler {
 public:
  virtual ~GrpcStreamHandler() = default;
  virtual void OnMessage(std::string bytes) = 0;
  virtual void OnEnd() = 0;  // the client sends no more
};

struct GrpcMethod {
  std::string path;    // "/staffel.v1.Inference/Chat"
  bool open = false;   // needs no key
  bool quick = false;  // runs on a thread of gRPC's, also while the server is unavailable
  // One of them. `handle` gets the client's only message; `stream` is asked at the begin of a call.
  std::function<void(std::string bytes, std::shared_ptr<GrpcCall>)> handle;
  std::function<std::shared_ptr<GrpcStreamHandler>(std::shared_ptr<GrpcCall>)> stream;
};

}  // namespace staffel
