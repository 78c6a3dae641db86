#include "server/tokenize/routes.h"

#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "base/utf8.h"
#include "server/api/json_text.h"
#include "server/api/prompts.h"
#include "server/api/text_tokens.h"

namespace staffel::api::tokenize {
namespace {

constexpr Field kTokenize[] = {
    {.name = "model", .kind = FieldKind::kString, .note = "a served name"},
    {.name = "prompt", .kind = FieldKind::kString, .note = "text; or messages, or content"},
    {.name = "messages", .kind = FieldKind::kArray, .note = "a conversation"},
    {.name = "add_special_tokens",
     .kind = FieldKind::kBool,
     .note = "of prompt, messages and inputs",
     .fallback = "true"},
    {.name = "return_token_strs", .kind = FieldKind::kBool, .note = "", .fallback = "false"},
    {.name = "inputs",
     .kind = FieldKind::kString,
     .note = "text, in the words of text-generation-inference"},
    {.name = "content", .kind = FieldKind::kString, .note = "text, in the words of llama-server"},
    {.name = "add_special", .kind = FieldKind::kBool, .note = "of content", .fallback = "false"},
    {.name = "with_pieces", .kind = FieldKind::kBool, .note = "of content", .fallback = "false"},
    {.name = "parse_special",
     .kind = FieldKind::kBool,
     .note = "control tokens are recognised; default: false for prompt, true for content"},
};

constexpr Field kDetokenize[] = {
    {.name = "model", .kind = FieldKind::kString, .note = "a served name"},
    {.name = "tokens", .kind = FieldKind::kArray, .note = "token ids", .use = FieldUse::kRequired},
};

constexpr RouteDoc kRoutes[] = {
    {.method = "POST",
     .path = "/tokenize",
     .summary = "The tokens of a text or conversation",
     .fields = kTokenize,
     .answer_type = R"(["object","array"])"},
    {"POST", "/detokenize", "The text of tokens", kDetokenize, {}, false},
    {"GET",
     "/tokenizer_info",
     "The vocabulary's special tokens and the chat template",
     {},
     {},
     false},
};

// llama-server's form. A piece that is no text is a list of its bytes.
std::string ContentTokens(const ServedModel& model, const std::string& content,
                          FieldReader& reader) {
  const bool add_special = reader.Bool("add_special").value_or(false);
  const bool parse_special = reader.Bool("parse_special").value_or(true);
  const std::vector<TokenId> tokens = model.tokenizer->Encode(content, parse_special, add_special);
  if (!reader.Bool("with_pieces").value_or(false))
    return StrCat("{\"tokens\":", IdsJson(tokens), "}");
  std::string out = "{\"tokens\":[";
  for (size_t i = 0; i < tokens.size(); i++) {
    StrAppend(out, i > 0 ? "," : "", "{\"id\":", tokens[i], ",\"piece\":");
    const std::string_view piece = model.tokenizer->TokenBytes(tokens[i], /*special=*/true);
    IsValidUtf8(piece) ? AppendJsonString(out, piece) : AppendJsonBytes(out, piece);
    out += '}';
  }
  return out + "]}";
}

// text-generation-inference's form.
std::string InputsTokens(const ServedModel& model, const std::string& inputs, FieldReader& reader) {
  const bool add_special = reader.Bool("add_special_tokens").value_or(true);
  const auto tokens = model.tokenizer->Encode(inputs, /*parse_special=*/true, add_special);
  return TokensInText(*model.tokenizer, inputs, tokens).dump();
}

// vLLM's form.
Checked<std::string> PromptTokens(const ServedModel& model, FieldReader& reader) {
  const bool add_special = reader.Bool("add_special_tokens").value_or(true);
  const bool parse_special = reader.Bool("parse_special").value_or(false);
  std::vector<TokenId> tokens;
  if (reader.Get("messages") != nullptr) {
    Checked<RenderedChat> rendered = RenderChat(model, reader);
    if (auto* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
    tokens = std::get<RenderedChat>(std::move(rendered)).tokens;
  } else {
    const std::optional<std::string> text = reader.String("prompt");
    if (!text && reader.ok())
      reader.Fail("prompt", "'prompt' is missing; send a string, 'messages' or 'content'");
    if (!reader.ok()) return *reader.error();
    tokens = model.tokenizer->Encode(*text, parse_special, add_special);
  }
  std::string out =
      StrCat("{\"count\":", tokens.size(), ",\"max_model_len\":", model.limits.max_model_len,
             ",\"tokens\":", IdsJson(tokens));
  if (reader.Bool("return_token_strs").value_or(false)) {
    out += ",\"token_strs\":[";
    for (size_t i = 0; i < tokens.size(); i++) {
      if (i > 0) out += ',';
      AppendJsonString(out, model.tokenizer->TokenBytes(tokens[i], /*special=*/true));
    }
    out += ']';
  }
  return out + "}";
}

void Tokenize(Call call) {
  Checked<ModelRequest> asked = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&asked)) return SendError(*call.writer, *error);
  const auto& [body, model] = std::get<ModelRequest>(asked);
  FieldReader reader(body);
  CheckFields(reader, kTokenize);
  const std::optional<std::string> content = reader.String("content");
  if (!reader.ok()) return SendError(*call.writer, *reader.error());
  const std::optional<std::string> inputs = reader.String("inputs");
  Checked<std::string> answer = content  ? ContentTokens(*model, *content, reader)
                                : inputs ? InputsTokens(*model, *inputs, reader)
                                         : PromptTokens(*model, reader);
  if (auto* error = std::get_if<ApiError>(&answer)) return SendError(*call.writer, *error);
  call.writer->Send(200, "application/json", std::get<std::string>(std::move(answer)));
}

// One request for all; each finds the text under its own name.
void Detokenize(Call call) {
  Checked<ModelRequest> asked = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&asked)) return SendError(*call.writer, *error);
  const auto& [body, model] = std::get<ModelRequest>(asked);
  FieldReader reader(body);
  const auto ids = reader.IntArray("tokens", 0, model->tokenizer->vocab_size() - 1);
  if (!ids && reader.ok()) reader.Fail("tokens", "'tokens' is missing; send an array of token ids");
  if (!reader.ok()) return SendError(*call.writer, *reader.error());
  const std::vector<TokenId> tokens(ids->begin(), ids->end());
  const std::string text = model->tokenizer->Decode(tokens, /*special=*/true);
  std::string out = "{\"prompt\":";
  AppendJsonString(out, text);
  out += ",\"content\":";
  AppendJsonString(out, text);
  call.writer->Send(200, "application/json", out + "}");
}

// What evaluation programs need to make prompts themselves (vLLM's route).
void TokenizerInfo(Call call) {
  auto found = FindModel(call.models, Json::object());
  if (auto* error = std::get_if<ApiError>(&found)) return SendError(*call.writer, *error);
  const ServedModel& model = *std::get<std::shared_ptr<const ServedModel>>(found);
  const TokenizerSpec& spec = model.tokenizer->spec();
  const auto name = [&](TokenId token) {
    return token < 0 ? Json() : Json(model.tokenizer->TokenBytes(token, /*special=*/true));
  };
  Json info = {{"tokenizer_class", spec.model},
               {"vocab_size", model.tokenizer->vocab_size()},
               {"model_max_length", model.limits.max_model_len},
               {"add_bos_token", spec.add_bos},
               {"bos_token", name(spec.bos)},
               {"eos_token", name(spec.eos)},
               {"pad_token", name(spec.padding)},
               {"unk_token", name(spec.unknown)}};
  if (!model.facts.chat_template.empty()) info["chat_template"] = model.facts.chat_template;
  Send(call, info);
}

}  // namespace

void AddRoutes(Service& service, Router& router) {
  service.Add(router, "POST", "/tokenize", Tokenize);
  service.Add(router, "POST", "/detokenize", Detokenize);
  service.Add(router, "GET", "/tokenizer_info", TokenizerInfo);
}

std::span<const RouteDoc> RouteDocs() { return kRoutes; }

}  // namespace staffel::api::tokenize
