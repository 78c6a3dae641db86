#include "server/llama/answer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/strings.h"
#include "server/api/json_parse.h"
#include "server/api/json_text.h"
#include "server/api/usage.h"
#include "text/utf8.h"

namespace staffel::api::llama {
namespace {

const char* StopType(const Piece& all) {
  if (all.stop_string) return "word";
  if (all.finish == FinishReason::kStop) return "eos";
  return all.finish == FinishReason::kLength ? "limit" : "none";
}

Json Ids(const std::vector<GeneratedToken>& tokens) {
  Json ids = Json::array();
  for (const GeneratedToken& token : tokens) ids.push_back(token.token);
  return ids;
}

// The members that the paths name ("a", "a/b"), under their paths; what is not there is left out.
Json Select(const Json& answer, const std::vector<std::string>& paths) {
  Json selected = Json::object();
  for (const std::string& path : paths) {
    const Json* at = &answer;
    for (size_t begin = 0; at != nullptr && begin <= path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      const std::string key = path.substr(begin, end - begin);
      const bool there = at->is_object() && at->contains(key);
      at = there ? &(*at)[key] : nullptr;
      begin = end + 1;
    }
    if (at != nullptr) selected[path] = *at;
  }
  return selected;
}

class Answer final : public HttpSink {
 public:
  Answer(std::shared_ptr<ResponseWriter> writer, const GenerationSpec& spec, AnswerOptions options)
      : HttpSink(std::move(writer)),
        options_(std::move(options)),
        stream_(spec.options.stream),
        timings_(spec.options.timings_per_token),
        context_(spec.model->limits.max_model_len),
        tokenizer_(spec.model->tokenizer),
        model_(spec.model->names[0]),
        settings_(SettingsOf(spec.options)) {}

  bool BeginStream() override {
    streaming_ = true;
    writer().BeginStream();
    return true;
  }

  bool OpenChoice(const ChoiceResult& choice) override {
    if (states_.size() <= static_cast<size_t>(choice.index)) states_.resize(choice.index + 1);
    states_[choice.index].prompt = choice.prompt;
    return true;
  }

  // Tokens without text wait for the next event that has some, or for the last one.
  bool WritePiece(int index, const Piece& piece) override {
    State& state = states_[index];
    state.has_new_line |= piece.text.find('\n') != std::string::npos;
    state.held.insert(state.held.end(), piece.tokens.begin(), piece.tokens.end());
    bool written = true;
    if (!piece.text.empty()) {
      written = writer().WriteEvent(Event(index, piece, state));
      state.held.clear();
      state.begun = true;
    }
    if (!piece.finish || !written) return written;
    Piece last = piece;
    last.text.clear();
    last.tokens = std::move(state.held);
    return writer().WriteEvent(Dump(Last(index, last, state.prompt, state.has_new_line)));
  }

  void Complete(const std::vector<ChoiceResult>& choices, const Usage&) override {
    if (stream_) return writer().EndStream();
    Json all = Json::array();
    for (const ChoiceResult& choice : choices) {
      all.push_back(Last(choice.index, choice.all, choice.prompt,
                         choice.all.text.find('\n') != std::string::npos));
    }
    writer().Send(200, "application/json", Dump(all.size() == 1 ? all[0] : all));
  }

  void Fail(const ApiError& error) override {
    if (!streaming_) return SendError(writer(), error, ErrorText);
    writer().WriteEvent(ErrorText(error));
    writer().EndStream();
  }

 private:
  // Of a choice that is streamed.
  struct State {
    absl::Span<const TokenId> prompt;
    std::vector<GeneratedToken> held;
    bool has_new_line = false, begun = false;
  };

  Json Token(TokenId id, float logprob) const {
    const std::string_view bytes = tokenizer_->TokenBytes(id, /*special=*/true);
    Json numbers = Json::array();
    for (const char c : bytes) numbers.push_back(static_cast<uint8_t>(c));
    return {{"id", id},
            {"token", ToValidUtf8(bytes)},
            {"bytes", std::move(numbers)},
            {"logprob", JsonNumber(logprob)}};
  }

  Json Probabilities(const std::vector<GeneratedToken>& tokens) const {
    Json all = Json::array();
    for (const GeneratedToken& token : tokens) {
      Json entry = Token(token.token, token.logprob);
      entry["top_logprobs"] = Json::array();
      for (const TokenLogprob& top : token.top)
        entry["top_logprobs"].push_back(Token(top.token, top.logprob));
      all.push_back(std::move(entry));
    }
    return all;
  }

  // By hand: there is one for nearly every token.
  std::string Event(int index, const Piece& piece, const State& state) const {
    std::string out = StrCat("{\"index\":", index, ",\"content\":");
    AppendJsonString(out, piece.text);
    out += ",\"tokens\":[";
    for (size_t i = 0; i < state.held.size(); i++)
      StrAppend(out, i > 0 ? "," : "", state.held[i].token);
    StrAppend(out, "],\"stop\":false,\"id_slot\":-1,\"tokens_predicted\":",
              piece.usage.completion_tokens, ",\"tokens_evaluated\":", piece.usage.prompt_tokens);
    if (options_.probabilities)
      StrAppend(out, ",\"completion_probabilities\":", Dump(Probabilities(state.held)));
    if (timings_) StrAppend(out, ",\"timings\":", TimingsJson(piece.usage));
    if (options_.return_progress && !state.begun) {
      const auto ms =
          std::chrono::duration_cast<std::chrono::milliseconds>(piece.usage.prompt_time).count();
      StrAppend(out, ",\"prompt_progress\":{\"total\":", piece.usage.prompt_tokens,
                ",\"cache\":", piece.usage.cached_tokens,
                ",\"processed\":", piece.usage.prompt_tokens, ",\"time_ms\":", ms, "}");
    }
    return out + "}";
  }

  // The object that ends a choice: all of a whole answer, or what earlier events did not have.
  Json Last(int index, const Piece& all, absl::Span<const TokenId> prompt,
            bool has_new_line) const {
    const Usage& usage = all.usage;
    const bool tokens = stream_ || options_.return_tokens;
    Json out = {
        {"index", index},
        {"content", all.text},
        {"tokens", tokens ? Ids(all.tokens) : Json::array()},
        {"id_slot", -1},
        {"stop", true},
        {"model", model_},
        {"tokens_predicted", usage.completion_tokens},
        {"tokens_evaluated", usage.prompt_tokens},
        {"generation_settings", settings_},
        {"prompt", tokenizer_->Decode(prompt, /*special=*/true)},
        {"has_new_line", has_new_line},
        {"truncated", all.finish == FinishReason::kLength &&
                          usage.prompt_tokens + usage.completion_tokens >= context_},
        {"stop_type", StopType(all)},
        {"stopping_word", all.stop_string.value_or("")},
        {"tokens_cached", usage.cached_tokens},
        {"timings", Json::parse(TimingsJson(usage))},
    };
    if (options_.probabilities && !(stream_ && all.tokens.empty()))
      out["completion_probabilities"] = Probabilities(all.tokens);
    return options_.response_fields.empty() ? out : Select(out, options_.response_fields);
  }

  const AnswerOptions options_;
  const bool stream_, timings_;
  const int64_t context_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::string model_;
  const Json settings_;
  std::vector<State> states_;  // by choice, of streams
  bool streaming_ = false;
};

const char* ErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 501:
      return "not_supported_error";
    case 429:
    case 503:
      return "unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

std::string ErrorText(const ApiError& error) {
  return Dump(
      {{"error",
        {{"code", error.status}, {"message", error.message}, {"type", ErrorType(error.status)}}}});
}

Json SettingsOf(const GenerationOptions& options) {
  const SamplingParams& sampling = options.sampling;
  const int64_t max_tokens = options.max_tokens.value_or(-1);
  return {{"seed", sampling.seed},
          {"temperature", JsonNumber(sampling.temperature)},
          {"top_k", sampling.top_k},
          {"top_p", JsonNumber(sampling.top_p)},
          {"min_p", JsonNumber(sampling.min_p)},
          {"repeat_last_n", -1},
          {"repeat_penalty", JsonNumber(sampling.repetition_penalty)},
          {"presence_penalty", JsonNumber(sampling.presence_penalty)},
          {"frequency_penalty", JsonNumber(sampling.frequency_penalty)},
          {"dynatemp_range", 0.0},
          {"xtc_probability", 0.0},
          {"typical_p", 1.0},
          {"top_n_sigma", -1.0},
          {"dry_multiplier", 0.0},
          {"mirostat", 0},
          {"stop", options.stop},
          {"max_tokens", max_tokens},
          {"n_predict", max_tokens},
          {"ignore_eos", options.ignore_eos},
          {"stream", options.stream},
          {"n_probs", std::max(sampling.top_logprobs, 0)},
          {"min_keep", 0},
          {"samplers", {"penalties", "temperature", "top_k", "top_p", "min_p"}},
          {"lora", Json::array()}};
}

std::unique_ptr<AnswerSink> MakeAnswer(std::shared_ptr<ResponseWriter> writer,
                                       const GenerationSpec& spec, AnswerOptions options) {
  return std::make_unique<Answer>(std::move(writer), spec, std::move(options));
}

}  // namespace staffel::api::llama
