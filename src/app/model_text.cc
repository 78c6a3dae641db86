#include "app/model_text.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/strings.h"
#include "modelfile/model_digest.h"
#include "text/tokenizer.h"

namespace staffel {
namespace {

Result<std::string> ReadTemplateFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (!in.good() && !in.eof()) {
    return absl::InvalidArgumentError(
        StrCat("--chat-template: '", path, "' cannot be read; check its path and rights"));
  }
  return text;
}

// The file's own template, or a well-known one that the vocabulary fits.
Result<std::string> TemplateSource(const ModelFile& file, const Tokenizer& tokenizer) {
  if (file.chat_template()) return *file.chat_template();
  std::unordered_map<std::string_view, bool> is_control;
  for (TokenId id = 0; id < tokenizer.vocab_size(); id++) {
    if (tokenizer.IsControl(id)) is_control[tokenizer.TokenBytes(id, true)] = true;
  }
  STAFFEL_ASSIGN_OR_RETURN(
      const std::string_view fallback,
      DefaultChatTemplate([&](std::string_view token) { return is_control.contains(token); }));
  return std::string(fallback);
}

// Empty: a list, or nothing that JSON can say.
std::string ScalarJson(const Metadata& metadata, const std::string& key) {
  if (const auto value = metadata.Bool(key); value.ok()) return *value ? "true" : "false";
  if (const auto value = metadata.Int(key, INT64_MIN, INT64_MAX); value.ok()) return StrCat(*value);
  if (const auto value = metadata.Float(key); value.ok()) return nlohmann::json(*value).dump();
  if (const auto value = metadata.String(key); value.ok()) return nlohmann::json(*value).dump();
  return "";
}

api::ModelFacts FactsOf(const ModelFile& file) {
  api::ModelFacts facts;
  const Metadata& metadata = file.metadata();
  facts.architecture = metadata.String("general.architecture").value_or("");
  facts.file_bytes = file.file_bytes();
  std::map<std::string_view, int64_t> by_type;
  for (const TensorView& tensor : file.tensors()) {
    by_type[InfoOf(tensor.type).name] += tensor.rows * tensor.cols;
    facts.parameter_count += tensor.rows * tensor.cols;
  }
  int64_t most = 0;
  for (const auto& [type, count] : by_type) {
    if (count > most) facts.weight_type = type;
    most = std::max(most, count);
  }
  const auto length = [&](const char* key) {
    return metadata.Int(StrCat(facts.architecture, key), 0, INT64_MAX).value_or(0);
  };
  facts.context_length = length(".context_length");
  facts.embedding_length = length(".embedding_length");
  facts.digest = ModelDigest(file).value_or("");
  for (const std::string& key : metadata.Keys()) {
    // The template has a place of its own.
    if (key == "tokenizer.chat_template") continue;
    std::string value = ScalarJson(metadata, key);
    if (!value.empty()) facts.metadata.emplace_back(key, std::move(value));
  }
  return facts;
}

// `pooling_type` has the numbers of llama.cpp's GGUF files.
void ReadPooling(const Metadata& metadata, ModelText& text) {
  const std::string key = StrCat(text.facts.architecture, ".pooling_type");
  if (!metadata.Has(key)) return;
  constexpr int kFileNone = 0, kFileMean = 1, kFileLast = 3;
  const Result<int64_t> type = metadata.Int(key, 0, INT32_MAX);
  if (type.ok() && (*type == kFileNone || *type == kFileLast)) return;
  if (type.ok() && *type == kFileMean) {
    text.pooling = Pooling::kMean;
    return;
  }
  text.pooling = Pooling::kNone;
  text.embedding_problem =
      StrCat(type.ok() ? StrCat(key, " is ", *type) : std::string(type.status().message()),
             "; known are mean (1) and last (3), of which --pooling chooses one");
}

}  // namespace

Status CheckCallFormat(std::string_view name) {
  if (name == kFormatByTemplate) return absl::OkStatus();
  return answer::ParseCallFormat(name).status();
}

Status CheckReasoningFormat(std::string_view name) {
  if (name == kFormatByTemplate) return absl::OkStatus();
  return answer::ParseReasoningFormat(name).status();
}

Result<ModelText> LoadModelText(const ModelFile& file, const ModelTextOptions& options) {
  const std::string& template_path = options.template_path;
  ModelText text;
  text.facts = FactsOf(file);
  if (options.pooling) {
    text.pooling = *options.pooling;
  } else {
    ReadPooling(file.metadata(), text);
  }
  STAFFEL_ASSIGN_OR_RETURN(TokenizerSpec spec, file.ReadTokenizer());
  STAFFEL_ASSIGN_OR_RETURN(text.tokenizer, MakeTokenizer(std::move(spec)));
  const Result<std::string> source = template_path.empty() ? TemplateSource(file, *text.tokenizer)
                                                           : ReadTemplateFile(template_path);
  if (!source.ok()) {
    if (!template_path.empty()) return source.status();
    text.chat_template_problem = std::string(source.status().message());
    return text;
  }
  text.formats = answer::DetectFormats(*source);
  if (options.call_format != kFormatByTemplate) {
    STAFFEL_ASSIGN_OR_RETURN(text.formats.calls, answer::ParseCallFormat(options.call_format));
  }
  if (options.reasoning_format != kFormatByTemplate) {
    STAFFEL_ASSIGN_OR_RETURN(text.formats.reasoning,
                             answer::ParseReasoningFormat(options.reasoning_format));
  }
  Result<std::unique_ptr<ChatTemplate>> parsed =
      ChatTemplate::Parse(*source, SpecialTokensOf(*text.tokenizer));
  if (parsed.ok()) {
    text.chat_template = *std::move(parsed);
    text.facts.chat_template = *source;
    return text;
  }
  const std::string problem(parsed.status().message());
  if (!template_path.empty()) {
    return absl::InvalidArgumentError(StrCat("--chat-template '", template_path, "': ", problem));
  }
  text.chat_template_problem = StrCat("The model's chat template cannot be used: ", problem);
  return text;
}

}  // namespace staffel
