// The text side of a model: what the front needs of its file, wherever its weights are.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "answer/format.h"
#include "server/api/served_model.h"
#include "staffel/model_file.h"
#include "staffel/status.h"
#include "staffel/tokenizer.h"
#include "text/chat_template.h"

namespace staffel {

// What --tool-call-format and --reasoning-format say if the template decides.
inline constexpr std::string_view kFormatByTemplate = "auto";

struct ModelTextOptions {
  std::string template_path;
  std::string call_format{kFormatByTemplate}, reasoning_format{kFormatByTemplate};
  std::optional<Pooling> pooling;  // absent: as the file says, else kLast
};

// InvalidArgument, with the list of names, for a format that there is not.
Status CheckCallFormat(std::string_view name);
Status CheckReasoningFormat(std::string_view name);

struct ModelText {
  std::shared_ptr<const Tokenizer> tokenizer;
  // Null: there is none, for the reason in chat_template_problem.
  std::shared_ptr<const ChatTemplate> chat_template;
  std::string chat_template_problem;
  answer::Formats formats;  // how the template has the model write reasoning and calls of tools
  Pooling pooling = Pooling::kLast;  // of embeddings
  std::string embedding_problem;     // why pooling is kNone
  api::ModelFacts facts;
};

// The template is that of options.template_path if given, else the file's own, else a well-known
// one that the vocabulary fits. A model whose own template cannot be used still serves completions;
// a given one that cannot is an error.
Result<ModelText> LoadModelText(const ModelFile& file, const ModelTextOptions& options);

}  // namespace staffel
