#include "server/tgi/answer.h"

#include <utility>
#include <vector>

#include "base/strings.h"
#include "server/api/json_parse.h"
#include "server/api/json_text.h"
#include "text/decode_stream.h"

namespace staffel::api::tgi {
namespace {

std::string_view ErrorType(int status) {
  switch (status) {
    case 401:
    case 403:
      return "unauthorized";
    case 404:
      return "not_found";
    case 429:
      return "overloaded";
    case 503:
      return "healthcheck";
    default:
      return status < 500 ? "validation" : "generation";
  }
}

int StatusOf(const ApiError& error) {
  if (error.status == 400) return 422;
  return error.status == 500 ? 424 : error.status;
}

std::string_view FinishName(const Piece& all) {
  if (all.finish == FinishReason::kLength) return "length";
  return all.stop_string ? "stop_sequence" : "eos_token";
}

// The text that each token of a run adds to those before it; control tokens have their names.
class TokenTexts {
 public:
  explicit TokenTexts(const Tokenizer& tokenizer) : tokenizer_(tokenizer), decode_(tokenizer) {}

  std::string Next(TokenId token) {
    if (tokenizer_.IsControl(token)) return std::string(tokenizer_.TokenBytes(token, true));
    std::string text;
    decode_.Push(token, &text);
    size_ += text.size();
    return text;
  }

  // The text of the run's last token, where the whole is `size` bytes: an incomplete character is
  // shown, and what a stop string cut off is left out.
  void Fit(size_t size, std::string& last) {
    std::string rest;
    decode_.Flush(&rest);
    last += rest;
    size_ += rest.size();
    if (size_ > size) last.resize(last.size() - std::min(last.size(), size_ - size));
  }

 private:
  const Tokenizer& tokenizer_;
  DecodeStream decode_;
  size_t size_ = 0;  // of what came from the decoder
};

class Answer final : public HttpSink {
 public:
  Answer(std::shared_ptr<ResponseWriter> writer, AnswerOptions options)
      : HttpSink(std::move(writer)), options_(std::move(options)), texts_(*options_.tokenizer) {}

  bool BeginStream() override {
    streaming_ = true;
    writer().BeginStream();
    return true;
  }

  bool OpenChoice(const ChoiceResult& choice) override {
    prompt_tokens_ = choice.prompt.size();
    return true;
  }

  bool WritePiece(int, const Piece& piece) override {
    text_ += piece.text;
    for (size_t i = 0; i < piece.tokens.size(); i++) {
      generated_tokens_++;
      const bool last = piece.finish && i + 1 == piece.tokens.size();
      std::string text = texts_.Next(piece.tokens[i].token);
      if (last) texts_.Fit(text_.size(), text);
      std::string event = Event(piece.tokens[i], text);
      if (last && !piece.stop_token) return WriteLast(std::move(event), piece);
      if (!writer().WriteEvent(event + R"(,"generated_text":null,"details":null})")) return false;
    }
    if (!piece.finish) return true;
    const GeneratedToken end = piece.stop_token.value_or(End());
    std::string event = Event(end, texts_.Next(end.token));
    if (piece.stop_token) generated_tokens_++;
    return WriteLast(std::move(event), piece);
  }

  void Complete(const std::vector<ChoiceResult>& choices, const Usage&) override {
    if (options_.stream) return writer().EndStream();
    Json answer = {{"generated_text", options_.full_text_prefix + choices[0].all.text}};
    if (options_.details) {
      Json& details = answer["details"] = Details(choices[0]);
      for (size_t i = 1; i < choices.size(); i++) {
        Json other = Details(choices[i]);
        other["generated_text"] = options_.full_text_prefix + choices[i].all.text;
        details["best_of_sequences"].push_back(std::move(other));
      }
    }
    writer().Send(200, "application/json",
                  Dump(options_.in_list ? Json::array({std::move(answer)}) : answer));
  }

  void Fail(const ApiError& error) override {
    if (!streaming_) return SendTgiError(writer(), error);
    writer().WriteEvent(ErrorText(error));
    writer().EndStream();
  }

 private:
  // By hand: there is one for every token. Without the closing brace.
  std::string Event(const GeneratedToken& token, const std::string& text) {
    std::string out = StrCat("{\"index\":", ++index_, ",\"token\":");
    AppendToken(out, token.token, text, token.logprob);
    if (options_.top_tokens > 0) {
      out += ",\"top_tokens\":[";
      for (size_t i = 0; i < token.top.size(); i++) {
        if (i > 0) out += ',';
        AppendToken(out, token.top[i].token, TextOf(token.top[i].token), token.top[i].logprob);
      }
      out += ']';
    }
    return out;
  }

  void AppendToken(std::string& out, TokenId token, const std::string& text, float logprob) const {
    StrAppend(out, "{\"id\":", token, ",\"text\":");
    AppendJsonString(out, text);
    out += ",\"logprob\":";
    AppendJsonNumber(out, logprob);
    out += options_.tokenizer->IsControl(token) ? ",\"special\":true}" : ",\"special\":false}";
  }

  bool WriteLast(std::string event, const Piece& piece) {
    event += ",\"generated_text\":";
    AppendJsonString(event, options_.full_text_prefix + text_);
    event += ",\"details\":";
    if (options_.details) {
      StrAppend(event, "{\"finish_reason\":\"", FinishName(piece),
                "\",\"generated_tokens\":", generated_tokens_, ",\"input_length\":", prompt_tokens_,
                ",\"seed\":", options_.seed ? StrCat(*options_.seed) : "null", "}");
    } else {
      event += "null";
    }
    return writer().WriteEvent(event + "}");
  }

  // The event of the end needs a token, also where a grammar has ended the answer, which is as if
  // an end token had been the only one to choose from.
  GeneratedToken End() const {
    const auto ends = options_.tokenizer->end_tokens();
    return {.token = ends.empty() ? 0 : ends[0]};
  }

  std::string TextOf(TokenId token) const {
    return std::string(options_.tokenizer->TokenBytes(token, /*special=*/true));
  }

  Json Token(TokenId token, std::string text, float logprob) const {
    std::string out;
    AppendToken(out, token, text, logprob);
    return Json::parse(out);
  }

  Json Details(const ChoiceResult& choice) const {
    Json details = {{"finish_reason", FinishName(choice.all)},
                    {"generated_tokens", choice.completion_tokens},
                    {"seed", options_.seed ? Json(*options_.seed) : Json()},
                    {"prefill", Prefill(choice)},
                    {"tokens", Json::array()}};
    if (options_.top_tokens > 0) details["top_tokens"] = Json::array();
    TokenTexts texts(*options_.tokenizer);
    std::vector<GeneratedToken> tokens = choice.all.tokens;
    for (size_t i = 0; i < tokens.size(); i++) {
      std::string text = texts.Next(tokens[i].token);
      if (i + 1 == tokens.size()) texts.Fit(choice.all.text.size(), text);
      AddToken(tokens[i], std::move(text), details);
    }
    if (choice.all.stop_token) {
      AddToken(*choice.all.stop_token, texts.Next(choice.all.stop_token->token), details);
    }
    return details;
  }

  void AddToken(const GeneratedToken& token, std::string text, Json& details) const {
    details["tokens"].push_back(Token(token.token, std::move(text), token.logprob));
    if (options_.top_tokens == 0) return;
    Json top = Json::array();
    for (const TokenLogprob& other : token.top)
      top.push_back(Token(other.token, TextOf(other.token), other.logprob));
    details["top_tokens"].push_back(std::move(top));
  }

  // The prompt's tokens; the first has no log-probability.
  Json Prefill(const ChoiceResult& choice) const {
    Json prefill = Json::array();
    if (choice.prompt_logprobs == nullptr) return prefill;
    TokenTexts texts(*options_.tokenizer);
    for (size_t i = 0; i < choice.prompt.size(); i++) {
      const float logprob = i == 0 ? 0 : (*choice.prompt_logprobs)[i - 1].logprob;
      Json token = Token(choice.prompt[i], texts.Next(choice.prompt[i]), logprob);
      token.erase("special");
      if (i == 0) token["logprob"] = nullptr;
      prefill.push_back(std::move(token));
    }
    return prefill;
  }

  const AnswerOptions options_;
  bool streaming_ = false;
  // Of a stream:
  TokenTexts texts_;
  std::string text_;
  size_t prompt_tokens_ = 0;
  int generated_tokens_ = 0;
  int index_ = 0;  // of the last event; the first has 1
};

}  // namespace

std::unique_ptr<AnswerSink> MakeAnswer(std::shared_ptr<ResponseWriter> writer,
                                       AnswerOptions options) {
  return std::make_unique<Answer>(std::move(writer), std::move(options));
}

std::string ErrorText(const ApiError& error) {
  return Dump({{"error", error.message}, {"error_type", ErrorType(error.status)}});
}

void SendTgiError(ResponseWriter& writer, const ApiError& error) {
  writer.Send(StatusOf(error), "application/json", ErrorText(error), error.headers);
}

}  // namespace staffel::api::tgi
