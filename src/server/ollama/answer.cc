#include "server/ollama/answer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>
#include <vector>

#include "answer/delta.h"
#include "base/strings.h"
#include "server/api/answer_deltas.h"
#include "server/api/json_parse.h"
#include "server/api/json_text.h"
#include "text/utf8.h"

namespace staffel::api::ollama {
namespace {

using Kind = answer::Delta::Kind;

int64_t Nanoseconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

// An object always, which clients rely on; arguments that are none keep their text.
Json ArgumentsOf(const std::string& text) {
  if (text.empty()) return Json::object();
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_object()) return parsed;
  return {{"INVALID_JSON", text}};
}

Json Token(const Tokenizer& tokenizer, TokenId id, float logprob) {
  const std::string_view bytes = tokenizer.TokenBytes(id, /*special=*/true);
  Json numbers = Json::array();
  for (const char c : bytes) numbers.push_back(static_cast<uint8_t>(c));
  return {{"token", ToValidUtf8(bytes)},
          {"logprob", JsonNumber(logprob)},
          {"bytes", std::move(numbers)}};
}

// What a line or a whole answer says, from the deltas of one answer in their order.
class Said {
 public:
  void Add(const Piece& piece) {
    for (const answer::Delta& delta : DeltasOf(piece)) {
      switch (delta.kind) {
        case Kind::kContent:
          content += delta.text;
          break;
        case Kind::kReasoning:
          thinking += delta.text;
          break;
        case Kind::kCallBegin:
          call_ = {delta.id, delta.name, ""};
          break;
        case Kind::kCallArguments:
          call_.arguments += delta.text;
          break;
        case Kind::kCallEnd:
          calls.push_back({{"id", call_.id},
                           {"function",
                            {{"index", delta.call},
                             {"name", call_.name},
                             {"arguments", ArgumentsOf(call_.arguments)}}}});
          break;
      }
    }
  }

  // Calls are told whole: what has begun of one stays.
  void Clear() {
    content.clear();
    thinking.clear();
    calls = Json::array();
  }
  bool empty() const { return content.empty() && thinking.empty() && calls.empty(); }

  std::string content, thinking;
  Json calls = Json::array();

 private:
  answer::Call call_;
};

class Answer final : public HttpSink {
 public:
  Answer(std::shared_ptr<ResponseWriter> writer, const GenerationSpec& spec, AnswerOptions options)
      : HttpSink(std::move(writer)),
        options_(std::move(options)),
        stream_(spec.options.stream),
        logprobs_(spec.options.logprobs),
        tokenizer_(spec.model->tokenizer) {}

  bool BeginStream() override {
    streaming_ = true;
    writer().BeginStream({}, StreamFraming::kLines);
    return true;
  }

  bool WritePiece(int, const Piece& piece) override {
    said_.Add(piece);
    tokens_.insert(tokens_.end(), piece.tokens.begin(), piece.tokens.end());
    if (said_.empty()) return true;
    Json line = Line(said_);
    line["done"] = false;
    if (logprobs_) line["logprobs"] = Logprobs(tokens_);
    said_.Clear();
    tokens_.clear();
    return writer().WriteEvent(Dump(line));
  }

  void Complete(const std::vector<ChoiceResult>& choices, const Usage& usage) override {
    const ChoiceResult& choice = choices.front();
    if (!stream_) said_.Add(choice.all);
    Json last = Line(said_);
    last["done"] = true;
    last["done_reason"] = choice.all.finish == FinishReason::kLength ? "length" : "stop";
    last["total_duration"] = Nanoseconds(usage.prompt_time + usage.answer_time);
    last["load_duration"] = 0;
    last["prompt_eval_count"] = usage.prompt_tokens;
    last["prompt_eval_duration"] = Nanoseconds(usage.prompt_time);
    last["eval_count"] = usage.completion_tokens;
    last["eval_duration"] = Nanoseconds(usage.answer_time);
    if (options_.context) last["context"] = ContextOf(choice);
    // Of a stream, those that came without text.
    const std::vector<GeneratedToken>& tokens = stream_ ? tokens_ : choice.all.tokens;
    if (logprobs_ && !(stream_ && tokens.empty())) last["logprobs"] = Logprobs(tokens);
    if (!stream_) return writer().Send(200, "application/json", Dump(last));
    writer().WriteEvent(Dump(last));
    writer().EndStream();
  }

  void Fail(const ApiError& error) override {
    if (!streaming_) return SendError(writer(), error, ErrorText);
    writer().WriteEvent(ErrorText(error));
    writer().EndStream();
  }

 private:
  Json Line(const Said& said) const {
    Json line = {{"model", options_.model}, {"created_at", Now()}};
    if (options_.chat) {
      Json& message = line["message"] = {{"role", "assistant"}, {"content", said.content}};
      if (!said.thinking.empty()) message["thinking"] = said.thinking;
      if (!said.calls.empty()) message["tool_calls"] = said.calls;
    } else {
      line["response"] = said.content;
      if (!said.thinking.empty()) line["thinking"] = said.thinking;
    }
    return line;
  }

  Json Logprobs(const std::vector<GeneratedToken>& tokens) const {
    Json all = Json::array();
    for (const GeneratedToken& token : tokens) {
      Json entry = Token(*tokenizer_, token.token, token.logprob);
      entry["top_logprobs"] = Json::array();
      for (const TokenLogprob& top : token.top)
        entry["top_logprobs"].push_back(Token(*tokenizer_, top.token, top.logprob));
      all.push_back(std::move(entry));
    }
    return all;
  }

  // With the token that ended the answer, so that the next turn follows a closed one.
  static Json ContextOf(const ChoiceResult& choice) {
    Json context = Json::array();
    for (const TokenId token : choice.prompt) context.push_back(token);
    for (const GeneratedToken& token : choice.all.tokens) context.push_back(token.token);
    if (choice.all.stop_token) context.push_back(choice.all.stop_token->token);
    return context;
  }

  const AnswerOptions options_;
  const bool stream_, logprobs_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  Said said_;                           // that no line has told yet
  std::vector<GeneratedToken> tokens_;  // of it
  bool streaming_ = false;
};

}  // namespace

std::string ErrorText(const ApiError& error) { return Dump({{"error", error.message}}); }

std::string TimeText(int64_t unix_s, int64_t nanoseconds) {
  const auto seconds = static_cast<std::time_t>(unix_s);
  std::tm utc = {};
  gmtime_r(&seconds, &utc);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%09ldZ", utc.tm_year + 1900,
                utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                static_cast<long>(nanoseconds));
  return text;
}

std::string Now() {
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  return TimeText(now / 1'000'000'000, now % 1'000'000'000);
}

std::unique_ptr<AnswerSink> MakeAnswer(std::shared_ptr<ResponseWriter> writer,
                                       const GenerationSpec& spec, AnswerOptions options) {
  return std::make_unique<Answer>(std::move(writer), spec, std::move(options));
}

void SendLookUp(ResponseWriter& writer, const AnswerOptions& options) {
  Json answer = {{"model", options.model}, {"created_at", Now()}};
  if (options.chat) {
    answer["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    answer["response"] = "";
  }
  answer["done"] = true;
  answer["done_reason"] = "load";
  writer.Send(200, "application/json", Dump(answer));
}

std::string EmbedText(const Embeddings& embeddings, const std::string& model) {
  std::string out = "{\"model\":";
  AppendJsonString(out, model);
  out += ",\"embeddings\":[";
  for (size_t i = 0; i < embeddings.vectors.size(); i++) {
    if (i > 0) out += ',';
    AppendVector(out, embeddings.vectors[i]);
  }
  StrAppend(out, "],\"total_duration\":", Nanoseconds(embeddings.usage.prompt_time),
            ",\"load_duration\":0,\"prompt_eval_count\":", embeddings.usage.prompt_tokens, "}");
  return out;
}

std::string EarlierEmbeddingText(const Embeddings& embeddings, const std::string&) {
  std::string out = "{\"embedding\":";
  AppendVector(out, embeddings.vectors.empty() ? std::vector<float>() : embeddings.vectors.front());
  return out + "}";
}

}  // namespace staffel::api::ollama
