// What all fronts of a server share: the models it serves at the moment, and the threads on which
// requests are read. Lives as long as the servers that carry the fronts.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "server/api/api_error.h"
#include "server/api/json_parse.h"
#include "server/api/served_model.h"
#include "server/http.h"

namespace staffel::api {

// One HTTP request at a front.
struct Call {
  const ModelSet& models;  // of the moment the request came
  HttpRequest request;
  std::shared_ptr<ResponseWriter> writer;
  TaskRunner* runner;
};

// 200 with the value.
void Send(const Call& call, const Json& value);

// Of the system's clock, since 1970.
int64_t UnixSeconds();

class Service {
 public:
  using Handler = void (*)(Call call);

  // The runner outlives the service.
  explicit Service(TaskRunner* runner) : runner_(runner) {}
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Any thread; not empty. Requests that have begun keep the model they began with.
  void SetModels(std::shared_ptr<const ModelSet> models);
  // Null before the first SetModels. Any thread.
  std::shared_ptr<const ModelSet> models() const;
  TaskRunner* runner() const { return runner_; }

  // Adds a route whose handler runs on the runner's threads. Until there are models it answers 503
  // with Retry-After. `error_shape` is that of the front, also for the HTTP layer's errors on this
  // path; ErrorBody is OpenAI's. The service outlives the router.
  void Add(Router& router, const char* method, const char* path, Handler handler,
           ErrorShape error_shape = ErrorBody);

 private:
  TaskRunner* const runner_;
  mutable std::mutex mutex_;
  std::shared_ptr<const ModelSet> models_;  // guarded by mutex_
};

}  // namespace staffel::api
