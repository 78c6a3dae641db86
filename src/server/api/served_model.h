// What the routes need of a loaded model. Shared by all requests, immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "answer/format.h"
#include "server/metrics.h"
#include "staffel/grammar.h"
#include "staffel/request.h"
#include "staffel/tokenizer.h"

namespace staffel {
class ChatTemplate;
}

namespace staffel::api {

// What a model's file says of itself, for clients that show it.
struct ModelFacts {
  std::string architecture;   // "llama", as the file spells it
  std::string weight_type;    // that most parameters have: "Q4_1"
  std::string chat_template;  // the template's source; "": the model has none that can be used
  std::string digest;         // ModelDigest; "" for a model that is in memory only
  int64_t parameter_count = 0;
  int64_t file_bytes = 0;
  int64_t context_length = 0, embedding_length = 0;  // 0: the file does not tell
  // Of the file, but lists: keys, and values as JSON text.
  std::vector<std::pair<std::string, std::string>> metadata;
};

struct ServedModel {
  std::vector<std::string> names;  // the first is the one shown; requests may use any
  int64_t created_unix_s = 0;
  ModelFacts facts;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: the model has none
  answer::Formats formats;                      // how the model writes reasoning and calls of tools
  std::string chat_template_problem;            // why it is null
  bool request_templates = false;               // a request's own template is taken in its place
  std::shared_ptr<grammar::Grammars> grammars;  // null: no structured output
  std::shared_ptr<EngineClient> engine;
  EngineLimits limits;
  int max_sequences = 0;             // that run together
  Pooling pooling = Pooling::kLast;  // of embeddings; kNone: there are none
  std::string embedding_problem;     // why there are none
  ModelMetrics* metrics = nullptr;   // null: not counted; else outlives the model
};

// The models of a server at one moment. Shared by requests, immutable.
struct ModelSet {
  // One that cannot be served now.
  struct Pending {
    std::vector<std::string> names;
    std::string reason;  // "waits for 1 more worker"
  };
  std::vector<std::shared_ptr<const ServedModel>> served;
  std::vector<Pending> pending;
};

}  // namespace staffel::api
