// The OpenAI routes and their companions: chat and text completions, models, tokenize, detokenize,
// render.
#pragma once

#include <memory>
#include <mutex>

#include "server/http.h"
#include "server/openai/generation.h"
#include "server/openai/served_model.h"

namespace staffel::openai {

// Lives as long as the HTTP server. Until SetModels is called, every route answers 503 with
// Retry-After.
class Api {
 public:
  // The runner outlives the Api.
  explicit Api(TaskRunner* runner) : runner_(runner) {}

  // Adds the routes.
  void Register(Router& router);

  // Any thread; not empty. Requests that have begun keep the model they began with.
  void SetModels(std::shared_ptr<const ModelSet> models);

 private:
  using Writer = std::shared_ptr<ResponseWriter>;
  using Handler = void (Api::*)(const ModelSet&, HttpRequest, Writer);

  void Add(Router& router, const char* method, const char* path, Handler handler);
  std::shared_ptr<const ModelSet> models() const;

  void Chat(const ModelSet& models, HttpRequest request, Writer writer);
  void Completions(const ModelSet& models, HttpRequest request, Writer writer);
  void Models(const ModelSet& models, HttpRequest request, Writer writer);
  void Model(const ModelSet& models, HttpRequest request, Writer writer);
  void Tokenize(const ModelSet& models, HttpRequest request, Writer writer);
  void Detokenize(const ModelSet& models, HttpRequest request, Writer writer);
  void Render(const ModelSet& models, HttpRequest request, Writer writer);

  TaskRunner* const runner_;
  mutable std::mutex mutex_;
  std::shared_ptr<const ModelSet> models_;  // guarded by mutex_
};

}  // namespace staffel::openai
