#include "server/api/service.h"

#include <chrono>
#include <utility>

namespace staffel::api {

void Send(const Call& call, const Json& value) {
  call.writer->Send(200, "application/json", Dump(value));
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void Service::SetModels(std::shared_ptr<const ModelSet> models) {
  std::lock_guard<std::mutex> lock(mutex_);
  models_ = std::move(models);
}

std::shared_ptr<const ModelSet> Service::models() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return models_;
}

void Service::Add(Router& router, const char* method, const char* path, Handler handler,
                  ErrorShape error_shape) {
  router.ShapeErrors(path, error_shape);
  router.Handle(
      method, path,
      [this, handler, error_shape](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
        std::shared_ptr<const ModelSet> models = this->models();
        if (models == nullptr) {
          return SendError(
              *writer,
              FromStatus(absl::UnavailableError("the model is loading; try again in a moment")),
              error_shape);
        }
        // A body can be megabytes of JSON and text: not on the thread that serves sockets.
        runner_->Post([runner = runner_, handler, models = std::move(models),
                       request = std::move(request), writer = std::move(writer)]() mutable {
          handler({*models, std::move(request), std::move(writer), runner});
        });
      });
}

}  // namespace staffel::api
