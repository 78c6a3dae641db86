#include "text/chat_template.h"

#include <algorithm>
#include <array>

#include "base/strings.h"
#include "text/jinja/builtins.h"
#include "text/jinja/template.h"

namespace staffel {
namespace {

using Json = nlohmann::ordered_json;

const Json kNull;

bool IsTrustedRole(std::string_view key, std::string_view value) {
  return key == "role" && IsKnownChatRole(value);
}

// Names that kwargs may not give: the request has fields for them, or they are functions.
bool IsReserved(std::string_view name) {
  return name == "messages" || name == "tools" || name == "add_generation_prompt" ||
         name == "continue_final_message" || jinja::FindGlobal(name) != nullptr;
}

Status CheckOptions(const ChatOptions& options) {
  if (options.continue_final_message && options.add_generation_prompt) {
    return absl::InvalidArgumentError(
        "continue_final_message and add_generation_prompt exclude each other: set one of them");
  }
  if (options.tools != nullptr && !options.tools->is_null() && !options.tools->is_array()) {
    return absl::InvalidArgumentError("tools must be an array");
  }
  if (options.kwargs == nullptr || options.kwargs->is_null()) return absl::OkStatus();
  if (!options.kwargs->is_object()) {
    return absl::InvalidArgumentError("chat_template_kwargs must be an object");
  }
  for (const auto& [name, value] : options.kwargs->items()) {
    if (IsReserved(name)) {
      return absl::InvalidArgumentError(
          StrCat("chat_template_kwargs cannot set '", name, "': the name is taken"));
    }
  }
  return absl::OkStatus();
}

// Null fields and an empty list of calls are as good as absent, but many templates look only
// whether they are there. Content is kept: it becomes "".
void DropEmptyFields(Json* message) {
  Json kept = Json::object();
  for (auto it = message->begin(); it != message->end(); ++it) {
    const bool empty_calls = it.key() == "tool_calls" && it.value().empty();
    if (!it.value().is_null() && !empty_calls) kept[it.key()] = std::move(it.value());
  }
  *message = std::move(kept);
}

// The text of a content part, or null if it is not a text part.
const std::string* PartText(const Json& part) {
  if (!part.is_object()) return nullptr;
  const auto type = part.find("type");
  const auto text = part.find("text");
  if (type != part.end() && *type != "text") return nullptr;
  if (text == part.end() || !text->is_string()) return nullptr;
  return &text->get_ref<const std::string&>();
}

}  // namespace

bool IsKnownChatRole(std::string_view role) {
  constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                      "assistant", "tool",      "function"};
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

ChatTemplate::ChatTemplate(std::unique_ptr<jinja::Template> program, SpecialTokens special_tokens)
    : program_(std::move(program)), special_tokens_(std::move(special_tokens)) {}

ChatTemplate::~ChatTemplate() = default;

SpecialTokens SpecialTokensOf(const Tokenizer& tokenizer) {
  const TokenizerSpec& known = tokenizer.spec();
  const auto text = [&](TokenId id) {
    return id < 0 ? std::string() : std::string(tokenizer.TokenBytes(id, /*special=*/true));
  };
  return {text(known.bos), text(known.eos), text(known.unknown), text(known.padding)};
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string_view source,
                                                          SpecialTokens special_tokens) {
  STAFFEL_ASSIGN_OR_RETURN(auto program, jinja::Template::Parse(source));
  std::unique_ptr<ChatTemplate> chat(
      new ChatTemplate(std::move(program), std::move(special_tokens)));
  chat->Probe();
  return chat;
}

// --- messages as templates expect them ---

Status ChatTemplate::NormalizeContent(Json* message) const {
  Json& content = (*message)["content"];
  if (content.is_null()) content = "";
  if (content.is_string()) {
    if (takes_string_content_) return absl::OkStatus();
    content = Json::array({Json::object({{"type", "text"}, {"text", content}})});
    return absl::OkStatus();
  }
  if (!content.is_array()) {
    return absl::InvalidArgumentError("the content of a message must be text or a list of parts");
  }
  std::string joined;
  for (const Json& part : content) {
    const std::string* text = PartText(part);
    if (text == nullptr) {
      return absl::InvalidArgumentError("this model takes only text as content of a message");
    }
    joined += *text;
  }
  if (content_form_ == ContentForm::kString) content = std::move(joined);
  return absl::OkStatus();
}

void ChatTemplate::NormalizeArguments(Json* message) const {
  const auto calls = message->find("tool_calls");
  if (calls == message->end() || !calls->is_array() || !takes_object_arguments_) return;
  for (Json& call : *calls) {
    if (!call.is_object()) continue;
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object()) continue;
    const auto arguments = function->find("arguments");
    if (arguments == function->end() || !arguments->is_string()) continue;
    const std::string& text = arguments->get_ref<const std::string&>();
    Json parsed = text.empty() ? Json::object() : Json::parse(text, nullptr, false);
    if (parsed.is_object() && !jinja::IsNestedTooDeeply(parsed)) *arguments = std::move(parsed);
  }
}

Result<Json> ChatTemplate::Normalize(const Json& messages) const {
  if (!messages.is_array() || messages.empty()) {
    return absl::InvalidArgumentError("messages must be a list with at least one message");
  }
  if (jinja::IsNestedTooDeeply(messages)) {
    return absl::InvalidArgumentError("the messages are nested too deeply");
  }
  Json normalized = messages;
  for (Json& message : normalized) {
    if (!message.is_object()) return absl::InvalidArgumentError("a message must be an object");
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) {
      return absl::InvalidArgumentError("a message needs a role");
    }
    DropEmptyFields(&message);
    STAFFEL_RETURN_IF_ERROR(NormalizeContent(&message));
    NormalizeArguments(&message);
  }
  return normalized;
}

// --- rendering ---

Result<PromptText> ChatTemplate::Render(const Json& messages, const ChatOptions& options) const {
  STAFFEL_RETURN_IF_ERROR(CheckOptions(options));
  STAFFEL_ASSIGN_OR_RETURN(Json normalized, Normalize(messages));
  if (options.continue_final_message) return RenderContinued(std::move(normalized), options);
  return RenderNormalized(normalized, options);
}

Result<PromptText> ChatTemplate::RenderNormalized(const Json& messages,
                                                  const ChatOptions& options) const {
  const bool has_tools = options.tools != nullptr && !options.tools->empty();
  const Json add_generation_prompt = options.add_generation_prompt;
  std::vector<jinja::Variable> variables = {{"messages", &messages, IsTrustedRole},
                                            {"tools", has_tools ? options.tools : &kNull},
                                            {"documents", &kNull},
                                            {"add_generation_prompt", &add_generation_prompt}};
  const std::pair<std::string_view, const std::string&> tokens[] = {
      {"bos_token", special_tokens_.bos},
      {"eos_token", special_tokens_.eos},
      {"unk_token", special_tokens_.unk},
      {"pad_token", special_tokens_.pad}};
  for (const auto& [name, text] : tokens) {
    if (!text.empty()) variables.push_back({name, nullptr, nullptr, text});
  }
  if (options.kwargs != nullptr && options.kwargs->is_object()) {
    for (auto it = options.kwargs->begin(); it != options.kwargs->end(); ++it) {
      variables.push_back({it.key(), &it.value()});
    }
  }
  return program_->Render(variables, options.now);
}

// The last message's content gets a mark at its end, and the prompt is cut before the mark. The
// mark ends in a space: if that is missing, the template trims content, and what it would have
// trimmed goes, too.
Result<PromptText> ChatTemplate::RenderContinued(Json messages, const ChatOptions& options) const {
  std::string mark = "\uE000";  // for private use: in no template, hardly in any text
  const std::string all = messages.dump();
  while (all.find(mark) != std::string::npos) mark += "\uE001";
  Json* content = &messages.back()["content"];
  if (content->is_array()) {
    const auto last = std::find_if(content->rbegin(), content->rend(),
                                   [](const Json& part) { return PartText(part) != nullptr; });
    if (last == content->rend()) {
      return absl::InvalidArgumentError("the last message has no text that could be continued");
    }
    content = &(*last)["text"];
  }
  *content = content->get<std::string>() + mark + " ";
  STAFFEL_ASSIGN_OR_RETURN(PromptText prompt, RenderNormalized(messages, options));
  const size_t cut = prompt.text.rfind(mark);
  if (cut == std::string::npos) {
    return absl::InvalidArgumentError(
        "the chat template does not show the last message, which therefore cannot be continued");
  }
  const bool trims = prompt.text.compare(cut + mark.size(), 1, " ") != 0;
  PromptText kept = jinja::Slice(prompt, 0, cut);
  if (trims && !kept.content.empty() && kept.content.back().end == cut) {
    // Only the content's own spaces, not those of the header before it.
    const size_t begin = kept.content.back().begin;
    const std::string_view tail = std::string_view(kept.text).substr(begin);
    kept = jinja::Slice(kept, 0, begin + jinja::TrimSpaces(tail, false, true).end);
  }
  return kept;
}

// --- what the template can take ---

void ChatTemplate::Probe() {
  uses_tools_ = program_->Mentions("tools");
  const std::string mark = "probe-text";
  ChatOptions options;
  options.now.tm_year = 100;
  options.now.tm_mday = 1;
  const auto render = [&](const Json& messages) -> std::string {
    const auto prompt = RenderNormalized(messages, options);
    return prompt.ok() ? prompt->text : "";
  };
  const auto has = [](const std::string& text, std::string_view piece) {
    return text.find(piece) != std::string::npos;
  };

  const Json parts = Json::array({Json::object({{"type", "text"}, {"text", mark}})});
  const std::string from_text = render({{{"role", "user"}, {"content", mark}}});
  const std::string from_parts = render({{{"role", "user"}, {"content", parts}}});
  // A template that does not know parts fails, or prints the list.
  const bool takes_parts =
      has(from_parts, mark) && !has(from_parts, "'text'") && !has(from_parts, "\"text\"");
  content_form_ = takes_parts ? ContentForm::kParts : ContentForm::kString;
  takes_string_content_ = has(from_text, mark) || !takes_parts;

  const auto with_arguments = [&](Json arguments) -> Json {
    const Json call = {{"id", "probe0000"},  // some templates insist on nine characters
                       {"type", "function"},
                       {"function", {{"name", "f"}, {"arguments", std::move(arguments)}}}};
    return Json::array(
        {{{"role", "user"}, {"content", "a"}},
         {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}},
         {{"role", "tool"}, {"content", "b"}, {"name", "f"}, {"tool_call_id", "probe0000"}}});
  };
  const Json object = {{"x", mark}};
  const std::string from_object = render(with_arguments(object));
  const std::string from_string = render(with_arguments(object.dump()));
  // A template that expects a string fails, or prints a Python dict.
  const bool reads_object = has(from_object, mark) && !has(from_object, "{'x'");
  takes_object_arguments_ = reads_object || !has(from_string, mark);
}

}  // namespace staffel
