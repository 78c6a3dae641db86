#include "app/model_text.h"

#include <fstream>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "base/strings.h"
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

}  // namespace

Result<ModelText> LoadModelText(const ModelFile& file, const std::string& template_path) {
  ModelText text;
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
  const TokenizerSpec& known = text.tokenizer->spec();
  const auto token = [&](TokenId id) {
    return id < 0 ? std::string() : std::string(text.tokenizer->TokenBytes(id, true));
  };
  Result<std::unique_ptr<ChatTemplate>> parsed = ChatTemplate::Parse(
      *source, {token(known.bos), token(known.eos), token(known.unknown), token(known.padding)});
  if (parsed.ok()) {
    text.chat_template = *std::move(parsed);
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
