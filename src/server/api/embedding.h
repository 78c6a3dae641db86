// One request for embeddings: its inputs go to the engine, so many at a time, and the pooled hidden
// states that come back are one answer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/api/json_parse.h"
#include "server/api/served_model.h"
#include "server/api/service.h"
#include "server/api/usage.h"
#include "server/http.h"
#include "staffel/request.h"

namespace staffel::api {

struct Embeddings {
  std::vector<std::vector<float>> vectors;  // [inputs][dimensions]
  Usage usage;
};

struct EmbeddingSpec {
  std::shared_ptr<const ServedModel> model;
  std::vector<std::vector<TokenId>> inputs;  // one at least, none empty
  int dimensions = 0;                        // the first so many values of each vector; 0: all
  bool normalize = true;  // to length 1, what is left of them; a vector of zeros stays
  int priority = 0;
  std::string cache_salt;
  TaskRunner* runner = nullptr;  // outlives the request
  // Called once, on the runner's threads or within StartEmbedding.
  std::function<void(Checked<Embeddings>)> done;
  // As ResponseWriter::OnDisconnect; what is not computed yet is then left.
  std::function<void(std::function<void()>)> on_disconnect;
};

// Not all inputs wait in the engine's queue at once: a request with many of them does not fill it,
// and is refused for its length only where the queue is full when it comes.
void StartEmbedding(EmbeddingSpec spec);

// The whole of an HTTP front: `body` makes the answer's JSON.
void AnswerEmbedding(Call call, EmbeddingSpec spec,
                     std::function<std::string(const Embeddings&)> body, ErrorShape error_shape);

// As a JSON array.
void AppendVector(std::string& out, absl::Span<const float> values);

}  // namespace staffel::api
