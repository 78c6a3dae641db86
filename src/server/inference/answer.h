// Answers as messages of proto/inference.proto over one gRPC call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "inference.pb.h"
#include "server/api/answer_sink.h"
#include "server/api/embedding.h"
#include "server/api/served_model.h"
#include "server/grpc/call.h"

namespace staffel::api::inference {

struct AnswerOptions {
  std::string id;
  int64_t created_unix_s = 0;
  std::shared_ptr<const ServedModel> model;
  bool stream = true;  // a message for each piece; else one with everything
  bool logprobs = false;
  bool return_token_ids = false;
};

std::unique_ptr<AnswerSink> MakeGenerateAnswer(std::shared_ptr<GrpcCall> call,
                                               AnswerOptions options);
std::unique_ptr<AnswerSink> MakeChatAnswer(std::shared_ptr<GrpcCall> call, AnswerOptions options);

v1::EmbedResponse ToMessage(const Embeddings& embeddings, const std::string& model);

}  // namespace staffel::api::inference
