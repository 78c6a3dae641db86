// An answer of Ollama's /api/chat or /api/generate: one JSON object, or lines of them, of which the
// last has "done": true.
#pragma once

#include <memory>
#include <string>

#include "server/api/answer_sink.h"
#include "server/api/embedding.h"
#include "server/api/generation.h"
#include "server/http.h"

namespace staffel::api::ollama {

// {"error": message}.
std::string ErrorText(const ApiError& error);

// The time now, or a time, in RFC 3339.
std::string Now();
std::string TimeText(int64_t unix_s, int64_t nanoseconds = 0);

struct AnswerOptions {
  std::string model;  // as the client named it
  bool chat = false;
  // The whole conversation as token ids at the end; streams need GenerationSpec::gather for it.
  bool context = false;
};

// Reads model and options of `spec`.
std::unique_ptr<AnswerSink> MakeAnswer(std::shared_ptr<ResponseWriter> writer,
                                       const GenerationSpec& spec, AnswerOptions options);

// The answer of /api/embed, and of the earlier /api/embeddings, which has one vector or none.
std::string EmbedText(const Embeddings& embeddings, const std::string& model);
std::string EarlierEmbeddingText(const Embeddings& embeddings, const std::string& model);

// The answer to a request that asks for none: the model is there.
void SendLookUp(ResponseWriter& writer, const AnswerOptions& options);

}  // namespace staffel::api::ollama
