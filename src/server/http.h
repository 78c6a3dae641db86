// The seam between the HTTP layer (sockets, limits, auth, SSE framing) and the routes: what a route
// gets and how it answers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace staffel {

struct HttpError;  // http_error.h
// The body of an error as JSON text; pure.
using ErrorShape = std::string (*)(const HttpError& error);

struct HttpRequest {
  std::string method;  // upper case
  std::string path;    // without query; as registered, the rest of a "/*" route percent-decoded
  std::string query;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;                                          // complete, within the body limit
  std::string request_id;

  // Value of a header (name in lower case), or "".
  std::string_view header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return {};
  }
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// How the parts of a streamed answer are told apart.
enum class StreamFraming : uint8_t {
  kEvents,  // server-sent events, text/event-stream; silence is filled with comments
  kLines,   // a JSON text a line, application/x-ndjson; silence stays silent
};

// The answer to one request. All calls from any thread; each request gets exactly one Send, or one
// BeginStream ... EndStream; what comes after that is ignored. A writer that is dropped without an
// answer sends 500; within a stream, an error event. After a disconnect all calls do nothing.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  // A whole answer. x-request-id, Content-Length and, for 429 and 503 without it, Retry-After are
  // added.
  virtual void Send(int status, std::string content_type, std::string body,
                    HttpHeaders headers = {}) = 0;
  // Status 200 and the content type at once; until EndStream, silence of events that is longer than
  // the ping interval is filled with comments.
  virtual void BeginStream(HttpHeaders headers = {},
                           StreamFraming framing = StreamFraming::kEvents) = 0;
  // One event, "data: <data>\n\n" behind "event: <name>\n" where it has a name; or one line, whose
  // `data` has no line feed and no name. False: the client is gone or too slow (its buffer is
  // full); the caller cancels the work.
  virtual bool WriteEvent(std::string_view data, std::string_view name = {}) = 0;
  virtual void EndStream() = 0;
  // `callback` runs once, on a server thread, when the client goes away before the answer is
  // complete; within this call if it is gone already. It must not hold the writer: a writer that
  // nobody else holds must be dropped. Replaces an earlier callback; dropped with the answer.
  virtual void OnDisconnect(std::function<void()> callback) = 0;
};

// Runs on a server thread; must not block for long: waiting is done by keeping the writer.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<ResponseWriter>)>;

// Routes are exact paths, or a prefix and "/*" for any non-empty rest ("/v1/models/*"). The HTTP
// layer answers 404 for unknown paths and 405 (with Allow) for unknown methods.
class Router {
 public:
  virtual ~Router() = default;
  virtual void Handle(std::string method, std::string path, HttpHandler handler) = 0;
  // The shape of the HTTP layer's own errors (no key, too large, not loaded yet, ...) on a path, or
  // on all paths of a prefix and "/*", known or not; the longest prefix counts. Other paths have
  // OpenAI's (http_error.h).
  virtual void ShapeErrors(std::string path, ErrorShape shape) = 0;
};

// Threads on which JSON, templates and tokenizing run; never the engine thread.
class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  // Tasks start in the order of posting.
  virtual void Post(std::function<void()> task) = 0;
  // For tasks of microseconds that a client waits for, such as the text of a token: none of them
  // waits for a task of Post. They may be left until the next WakeForShort, so that one wake-up
  // does for all that a step of the engine brings.
  virtual void PostShort(std::function<void()> task) = 0;
  virtual void WakeForShort() = 0;
};

}  // namespace staffel
