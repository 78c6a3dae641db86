#include "server/openai/response_format.h"

#include <algorithm>
#include <set>

#include "base/strings.h"
#include "server/api/json_text.h"
#include "text/utf8.h"

namespace staffel::api::openai {
namespace {

// Members that every answer and chunk begins with, without the closing brace.
std::string Envelope(const FormatOptions& options, std::string_view object) {
  std::string out = "{\"id\":";
  AppendJsonString(out, options.id);
  StrAppend(out, ",\"object\":\"", object, "\",\"created\":", options.created_unix_s,
            ",\"model\":");
  AppendJsonString(out, options.model);
  return out;
}

std::string UsageJson(const Usage& usage) {
  return StrCat("{\"prompt_tokens\":", usage.prompt_tokens,
                ",\"completion_tokens\":", usage.completion_tokens,
                ",\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens,
                ",\"prompt_tokens_details\":{\"cached_tokens\":", usage.cached_tokens,
                "},\"completion_tokens_details\":{\"reasoning_tokens\":", usage.reasoning_tokens,
                "}}");
}

template <class Tokens, class Get>
std::string IdArray(const Tokens& tokens, Get get) {
  std::string out = "[";
  for (const auto& token : tokens) {
    if (out.size() > 1) out += ',';
    StrAppend(out, get(token));
  }
  return out + "]";
}
std::string IdArray(const std::vector<GeneratedToken>& tokens) {
  return IdArray(tokens, [](const GeneratedToken& t) { return t.token; });
}
std::string IdArray(absl::Span<const TokenId> tokens) {
  return IdArray(tokens, [](TokenId t) { return t; });
}

// A token as log-probabilities name it.
std::string TokenName(const FormatOptions& options, TokenId token) {
  if (options.tokens_as_ids) return StrCat("token_id:", token);
  return ToValidUtf8(options.tokenizer->TokenBytes(token, /*special=*/true));
}

void AppendPromptToken(std::string& out, const Tokenizer& tokenizer, TokenId token, float logprob,
                       int rank) {
  StrAppend(out, "\"", token, "\":{\"logprob\":");
  AppendJsonNumber(out, logprob);
  StrAppend(out, ",\"rank\":", rank, ",\"decoded_token\":");
  AppendJsonString(out, tokenizer.TokenBytes(token, /*special=*/true));
  out += '}';
}

// vLLM's: null for the first token, then an object by token id: the likeliest, and the token
// itself.
std::string PromptLogprobsJson(const FormatOptions& options, const ChoiceResult& choice) {
  if (!options.prompt_logprobs || choice.prompt_logprobs == nullptr) return "null";
  const size_t top = *options.prompt_logprobs;
  std::string out = "[null";
  for (size_t i = 0; i < choice.prompt_logprobs->size() && i + 1 < choice.prompt.size(); i++) {
    const PromptLogprob& entry = (*choice.prompt_logprobs)[i];
    const TokenId token = choice.prompt[i + 1];
    out += ",{";
    AppendPromptToken(out, *options.tokenizer, token, entry.logprob, entry.rank);
    for (size_t k = 0; k < std::min(top, entry.top.size()); k++) {
      if (entry.top[k].token == token) continue;
      out += ',';
      AppendPromptToken(out, *options.tokenizer, entry.top[k].token, entry.top[k].logprob,
                        static_cast<int>(k) + 1);
    }
    out += '}';
  }
  return out + "]";
}

void AppendTimings(std::string& out, const FormatOptions& options, const Usage& usage) {
  if (options.timings) StrAppend(out, ",\"timings\":", TimingsJson(usage));
}

void AppendFinish(std::string& out, const std::optional<FinishReason>& finish) {
  out += ",\"finish_reason\":";
  finish ? AppendJsonString(out, FinishName(*finish)) : void(out += "null");
}

// ---- chat
// -----------------------------------------------------------------------------------------------------------

// {"token", "logprob", "bytes"} without the closing brace.
void AppendChatToken(std::string& out, const FormatOptions& options, TokenId token, float logprob) {
  std::string_view bytes = options.tokenizer->TokenBytes(token, /*special=*/true);
  out += "{\"token\":";
  AppendJsonString(out, TokenName(options, token));
  out += ",\"logprob\":";
  AppendJsonNumber(out, logprob);
  out += ",\"bytes\":";
  AppendJsonBytes(out, bytes);
}

void AppendChatLogprobs(std::string& out, const FormatOptions& options,
                        const std::vector<GeneratedToken>& tokens) {
  out += ",\"logprobs\":";
  if (!options.logprobs) {
    out += "null";
    return;
  }
  out += "{\"content\":[";
  for (size_t i = 0; i < tokens.size(); i++) {
    if (i > 0) out += ',';
    AppendChatToken(out, options, tokens[i].token, tokens[i].logprob);
    out += ",\"top_logprobs\":[";
    for (size_t k = 0; k < tokens[i].top.size(); k++) {
      if (k > 0) out += ',';
      AppendChatToken(out, options, tokens[i].top[k].token, tokens[i].top[k].logprob);
      out += '}';
    }
    out += "]}";
  }
  out += "],\"refusal\":null}";
}

void AppendChatFinish(std::string& out, const std::optional<FinishReason>& finish, bool calls) {
  if (finish == FinishReason::kStop && calls) {
    out += ",\"finish_reason\":\"tool_calls\"";
  } else {
    AppendFinish(out, finish);
  }
}

void AppendCall(std::string& out, const answer::Call& call) {
  out += "{\"id\":";
  AppendJsonString(out, call.id);
  out += ",\"type\":\"function\",\"function\":{\"name\":";
  AppendJsonString(out, call.name);
  out += ",\"arguments\":";
  AppendJsonString(out, call.arguments);
  out += "}}";
}

// The rest of a message behind "content":. True if it has calls.
bool AppendMessage(std::string& out, const ChoiceResult& choice) {
  answer::Answer told;
  for (const answer::Delta& delta : choice.all.deltas) told.Add(delta);
  const std::string text = choice.echo_text + choice.all.text;
  text.empty() && !told.calls.empty() ? void(out += "null") : AppendJsonString(out, text);
  out += ",\"refusal\":null";
  if (!told.reasoning.empty()) {
    out += ",\"reasoning_content\":";
    AppendJsonString(out, told.reasoning);
  }
  for (size_t i = 0; i < told.calls.size(); i++) {
    out += i == 0 ? ",\"tool_calls\":[" : ",";
    AppendCall(out, told.calls[i]);
  }
  out += told.calls.empty() ? "}" : "]}";
  return !told.calls.empty();
}

// The entries of tool_calls in a chunk: what each call gained, begun calls with id and name.
std::string CallEntries(const std::vector<answer::Delta>& deltas) {
  std::string out;
  for (size_t i = 0; i < deltas.size(); i++) {
    const bool begins = deltas[i].kind == answer::Delta::Kind::kCallBegin;
    if (!begins && deltas[i].kind != answer::Delta::Kind::kCallArguments) continue;
    if (!out.empty()) out += ',';
    StrAppend(out, "{\"index\":", deltas[i].call);
    if (begins) {
      out += ",\"id\":";
      AppendJsonString(out, deltas[i].id);
      out += ",\"type\":\"function\",\"function\":{\"name\":";
      AppendJsonString(out, deltas[i].name);
      out += ',';
    } else {
      out += ",\"function\":{";
    }
    std::string arguments = deltas[i].text;
    if (begins && i + 1 < deltas.size() &&
        deltas[i + 1].kind == answer::Delta::Kind::kCallArguments) {
      arguments = deltas[++i].text;
    }
    out += "\"arguments\":";
    AppendJsonString(out, arguments);
    out += "}}";
  }
  return out;
}

// The delta of a chunk; {} where nothing came but the finish.
void AppendDelta(std::string& out, const Piece& piece) {
  std::string reasoning;
  for (const answer::Delta& delta : piece.deltas) {
    if (delta.kind == answer::Delta::Kind::kReasoning) reasoning += delta.text;
  }
  const std::string calls = CallEntries(piece.deltas);
  const bool content = !piece.text.empty() || (piece.deltas.empty() && !piece.finish);
  out += '{';
  if (!reasoning.empty()) {
    out += "\"reasoning_content\":";
    AppendJsonString(out, reasoning);
  }
  if (content) {
    out += out.back() == '{' ? "\"content\":" : ",\"content\":";
    AppendJsonString(out, piece.text);
  }
  if (!calls.empty()) StrAppend(out, out.back() == '{' ? "" : ",", "\"tool_calls\":[", calls, "]");
  out += '}';
}

class ChatFormat final : public ResponseFormat {
 public:
  explicit ChatFormat(FormatOptions options)
      : options_(std::move(options)), chunk_(Envelope(options_, "chat.completion.chunk")) {}

  std::string OpenChunk(const ChoiceResult& choice) const override {
    std::string out = Begin(choice.index);
    out += "{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null";
    if (options_.return_token_ids) out += ",\"token_ids\":[]";
    out += "}]";
    if (options_.return_token_ids) StrAppend(out, ",\"prompt_token_ids\":", IdArray(choice.prompt));
    return End(std::move(out));
  }

  std::string PieceChunk(int index, const Piece& piece) override {
    std::string out = Begin(index);
    AppendDelta(out, piece);
    for (const answer::Delta& delta : piece.deltas) {
      if (delta.kind == answer::Delta::Kind::kCallBegin) called_.insert(index);
    }
    if (options_.logprobs && piece.tokens.empty()) {
      out += ",\"logprobs\":null";
    } else {
      AppendChatLogprobs(out, options_, piece.tokens);
    }
    AppendChatFinish(out, piece.finish, called_.contains(index));
    if (options_.return_token_ids) StrAppend(out, ",\"token_ids\":", IdArray(piece.tokens));
    out += "}]";
    return End(std::move(out), &piece.usage);
  }

  std::string UsageChunk(const Usage& usage) const override {
    return StrCat(chunk_, ",\"choices\":[],\"usage\":", UsageJson(usage), "}");
  }

  std::string Whole(const std::vector<ChoiceResult>& choices, const Usage& usage) const override {
    std::string out = Envelope(options_, "chat.completion");
    out += ",\"choices\":[";
    for (const ChoiceResult& choice : choices) {
      if (out.back() == '}') out += ',';
      StrAppend(out, "{\"index\":", choice.index,
                ",\"message\":{\"role\":\"assistant\",\"content\":");
      const bool calls = AppendMessage(out, choice);
      AppendChatLogprobs(out, options_, choice.all.tokens);
      AppendChatFinish(out, choice.all.finish, calls);
      if (options_.return_token_ids) StrAppend(out, ",\"token_ids\":", IdArray(choice.all.tokens));
      out += '}';
    }
    out += ']';
    if (options_.return_token_ids && !choices.empty())
      StrAppend(out, ",\"prompt_token_ids\":", IdArray(choices[0].prompt));
    if (options_.prompt_logprobs && !choices.empty())
      StrAppend(out, ",\"prompt_logprobs\":", PromptLogprobsJson(options_, choices[0]));
    AppendTimings(out, options_, usage);
    StrAppend(out, ",\"usage\":", UsageJson(usage), "}");
    return out;
  }

 private:
  std::string Begin(int index) const {
    return StrCat(chunk_, ",\"choices\":[{\"index\":", index, ",\"delta\":");
  }
  std::string End(std::string out, const Usage* usage = nullptr) const {
    if (usage != nullptr) AppendTimings(out, options_, *usage);
    out += options_.usage_in_chunks ? ",\"usage\":null}" : "}";
    return out;
  }

  const FormatOptions options_;
  const std::string chunk_;
  std::set<int> called_;  // choices that have calls
};

// ---- text completions
// ------------------------------------------------------------------------------------------------

size_t CodePoints(std::string_view text) {
  size_t count = 0;
  for (char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

// The four parallel arrays of the legacy logprobs object.
class LegacyLogprobs {
 public:
  LegacyLogprobs(const FormatOptions& options, int64_t offset)
      : options_(options), offset_(offset) {}

  void Add(TokenId token, const float* logprob, const std::vector<TokenLogprob>* top) {
    if (count_++ > 0) {
      for (std::string* list : {&tokens_, &logprobs_, &tops_, &offsets_}) *list += ',';
    }
    const std::string text = ToValidUtf8(options_.tokenizer->TokenBytes(token, /*special=*/true));
    const std::string name = TokenName(options_, token);
    AppendJsonString(tokens_, name);
    logprob != nullptr ? AppendJsonNumber(logprobs_, *logprob) : void(logprobs_ += "null");
    StrAppend(offsets_, offset_);
    offset_ += CodePoints(text);
    AddTop(name, logprob, top);
  }

  std::string Json() const {
    return StrCat("{\"tokens\":[", tokens_, "],\"token_logprobs\":[", logprobs_,
                  "],\"top_logprobs\":[", tops_, "],\"text_offset\":[", offsets_, "]}");
  }
  int64_t offset() const { return offset_; }

 private:
  // An object by token text; the chosen token is always in it. Different tokens may print alike:
  // the better one stays.
  void AddTop(const std::string& name, const float* logprob, const std::vector<TokenLogprob>* top) {
    if (logprob == nullptr || top == nullptr) {
      tops_ += "null";
      return;
    }
    tops_ += '{';
    std::vector<std::string> seen;
    auto put = [&](std::string key, float value) {
      for (const std::string& other : seen) {
        if (other == key) return;
      }
      if (!seen.empty()) tops_ += ',';
      AppendJsonString(tops_, key);
      tops_ += ':';
      AppendJsonNumber(tops_, value);
      seen.push_back(std::move(key));
    };
    for (const TokenLogprob& entry : *top) put(TokenName(options_, entry.token), entry.logprob);
    put(name, *logprob);
    tops_ += '}';
  }

  const FormatOptions& options_;
  int64_t offset_;
  int count_ = 0;
  std::string tokens_, logprobs_, tops_, offsets_;
};

class CompletionFormat final : public ResponseFormat {
 public:
  explicit CompletionFormat(FormatOptions options)
      : options_(std::move(options)), envelope_(Envelope(options_, "text_completion")) {}

  std::string OpenChunk(const ChoiceResult& choice) const override {
    if (choice.echo_text.empty() && !options_.return_token_ids) return "";
    LegacyLogprobs logprobs(options_, 0);
    AddPrompt(choice, logprobs);
    std::string out =
        Choice(choice.index, choice.echo_text, logprobs, options_.echo_logprobs, std::nullopt);
    if (options_.return_token_ids)
      StrAppend(out, ",\"token_ids\":[],\"prompt_token_ids\":", IdArray(choice.prompt));
    return End(StrCat(envelope_, ",\"choices\":[", out, "}]"));
  }

  std::string PieceChunk(int index, const Piece& piece) override {
    if (offsets_.size() <= static_cast<size_t>(index)) offsets_.resize(index + 1);
    LegacyLogprobs logprobs(options_, offsets_[index]);
    for (const GeneratedToken& token : piece.tokens)
      logprobs.Add(token.token, &token.logprob, &token.top);
    offsets_[index] = logprobs.offset();
    std::string out = Choice(index, piece.text, logprobs,
                             options_.logprobs && !piece.tokens.empty(), piece.finish);
    if (options_.return_token_ids) StrAppend(out, ",\"token_ids\":", IdArray(piece.tokens));
    return End(StrCat(envelope_, ",\"choices\":[", out, "}]"), &piece.usage);
  }

  std::string UsageChunk(const Usage& usage) const override {
    return StrCat(envelope_, ",\"choices\":[],\"usage\":", UsageJson(usage), "}");
  }

  std::string Whole(const std::vector<ChoiceResult>& choices, const Usage& usage) const override {
    std::string out = StrCat(envelope_, ",\"choices\":[");
    for (const ChoiceResult& choice : choices) {
      if (out.back() == '}') out += ',';
      LegacyLogprobs logprobs(options_, 0);
      AddPrompt(choice, logprobs);
      for (const GeneratedToken& token : choice.all.tokens)
        logprobs.Add(token.token, &token.logprob, &token.top);
      out += Choice(choice.index, choice.echo_text + choice.all.text, logprobs, options_.logprobs,
                    choice.all.finish);
      if (options_.prompt_logprobs)
        StrAppend(out, ",\"prompt_logprobs\":", PromptLogprobsJson(options_, choice));
      if (options_.return_token_ids) {
        StrAppend(out, ",\"token_ids\":", IdArray(choice.all.tokens),
                  ",\"prompt_token_ids\":", IdArray(choice.prompt));
      }
      out += '}';
    }
    out += ']';
    AppendTimings(out, options_, usage);
    StrAppend(out, ",\"usage\":", UsageJson(usage), "}");
    return out;
  }

 private:
  // A choice without its closing brace.
  static std::string Choice(int index, std::string_view text, const LegacyLogprobs& logprobs,
                            bool with_logprobs, const std::optional<FinishReason>& finish) {
    std::string out = StrCat("{\"index\":", index, ",\"text\":");
    AppendJsonString(out, text);
    StrAppend(out, ",\"logprobs\":", with_logprobs ? logprobs.Json() : "null");
    AppendFinish(out, finish);
    return out;
  }
  void AddPrompt(const ChoiceResult& choice, LegacyLogprobs& logprobs) const {
    if (!options_.echo_logprobs || choice.prompt_logprobs == nullptr) return;
    for (size_t i = 0; i < choice.prompt.size(); i++) {
      const PromptLogprob* entry = i > 0 && i <= choice.prompt_logprobs->size()
                                       ? &(*choice.prompt_logprobs)[i - 1]
                                       : nullptr;
      logprobs.Add(choice.prompt[i], entry ? &entry->logprob : nullptr,
                   entry ? &entry->top : nullptr);
    }
  }
  std::string End(std::string out, const Usage* usage = nullptr) const {
    if (usage != nullptr) AppendTimings(out, options_, *usage);
    out += options_.usage_in_chunks ? ",\"usage\":null}" : "}";
    return out;
  }

  const FormatOptions options_;
  const std::string envelope_;
  std::vector<int64_t> offsets_;  // by choice: where its next token begins in the text
};

}  // namespace

std::unique_ptr<ResponseFormat> MakeChatFormat(FormatOptions options) {
  return std::make_unique<ChatFormat>(std::move(options));
}
std::unique_ptr<ResponseFormat> MakeCompletionFormat(FormatOptions options) {
  return std::make_unique<CompletionFormat>(std::move(options));
}

}  // namespace staffel::api::openai
