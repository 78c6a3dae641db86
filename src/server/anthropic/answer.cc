#include "server/anthropic/answer.h"

#include <optional>
#include <utility>
#include <vector>

#include "answer/delta.h"
#include "base/strings.h"
#include "server/api/answer_deltas.h"
#include "server/api/json_parse.h"
#include "server/api/json_text.h"

namespace staffel::api::anthropic {
namespace {

using Kind = answer::Delta::Kind;

std::string_view ErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

Json UsageJson(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

// An object always: arguments that are none are handed on under the name that Anthropic's
// documentation gives for it.
Json InputOf(const std::string& arguments) {
  if (arguments.empty()) return Json::object();
  Json parsed = Json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_object()) return parsed;
  return {{"INVALID_JSON", arguments}};
}

class Answer final : public HttpSink {
 public:
  Answer(std::shared_ptr<ResponseWriter> writer, AnswerOptions options)
      : HttpSink(std::move(writer)), options_(std::move(options)) {}

  bool BeginStream() override {
    streaming_ = true;
    writer().BeginStream();
    Usage usage;
    usage.prompt_tokens = options_.prompt_tokens;
    Json message = Message(Json::array(), nullptr, nullptr, usage);
    return Write("message_start", {{"type", "message_start"}, {"message", std::move(message)}}) &&
           Write("ping", {{"type", "ping"}});
  }

  bool WritePiece(int, const Piece& piece) override {
    bool written = true;
    for (const answer::Delta& delta : DeltasOf(piece)) written = WriteDelta(delta) && written;
    return written;
  }

  void Complete(const std::vector<ChoiceResult>& choices, const Usage& usage) override {
    const Piece& all = choices.front().all;
    if (!options_.stream) return SendWhole(all, usage);
    CloseBlock();
    Json delta = {{"stop_reason", StopReason(all)}, {"stop_sequence", StopSequence(all)}};
    Write("message_delta",
          {{"type", "message_delta"}, {"delta", std::move(delta)}, {"usage", UsageJson(usage)}});
    Write("message_stop", {{"type", "message_stop"}});
    writer().EndStream();
  }

  void Fail(const ApiError& error) override {
    if (!streaming_) return SendMessagesError(writer(), error);
    writer().WriteEvent(ErrorText(error), "error");
    writer().EndStream();
  }

 private:
  Json Message(Json content, Json stop_reason, Json stop_sequence, const Usage& usage) const {
    return {{"id", options_.id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", options_.model},
            {"content", std::move(content)},
            {"stop_reason", std::move(stop_reason)},
            {"stop_sequence", std::move(stop_sequence)},
            {"usage", UsageJson(usage)}};
  }

  void SendWhole(const Piece& all, const Usage& usage) {
    Json content = Json::array();
    for (const answer::Delta& delta : DeltasOf(all)) {
      if (Begins(delta)) content.push_back(BlockOf(delta));
      open_ = delta.kind == Kind::kCallEnd ? std::nullopt : std::optional<Kind>(RunOf(delta));
      if (content.empty()) continue;
      Json& block = content.back();
      if (delta.kind == Kind::kContent) {
        block["text"].get_ref<std::string&>() += delta.text;
      } else if (delta.kind == Kind::kReasoning) {
        block["thinking"].get_ref<std::string&>() += delta.text;
      } else if (delta.kind == Kind::kCallArguments) {
        arguments_ += delta.text;
      } else if (delta.kind == Kind::kCallEnd) {
        block["input"] = InputOf(std::exchange(arguments_, ""));
      }
    }
    const Json message = Message(std::move(content), StopReason(all), StopSequence(all), usage);
    writer().Send(200, "application/json", Dump(message));
  }

  // The kind whose runs are blocks: a call's parts are one.
  static Kind RunOf(const answer::Delta& delta) {
    const bool call = delta.kind != Kind::kContent && delta.kind != Kind::kReasoning;
    return call ? Kind::kCallBegin : delta.kind;
  }

  bool Begins(const answer::Delta& delta) {
    if (delta.kind == Kind::kCallBegin) calls_ = true;
    return delta.kind == Kind::kCallBegin || open_ != RunOf(delta);
  }

  static Json BlockOf(const answer::Delta& delta) {
    if (delta.kind == Kind::kContent) return {{"type", "text"}, {"text", ""}};
    if (delta.kind == Kind::kReasoning)
      return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    return {
        {"type", "tool_use"}, {"id", delta.id}, {"name", delta.name}, {"input", Json::object()}};
  }

  bool WriteDelta(const answer::Delta& delta) {
    if (Begins(delta)) {
      CloseBlock();
      open_ = RunOf(delta);
      Write(
          "content_block_start",
          {{"type", "content_block_start"}, {"index", index_}, {"content_block", BlockOf(delta)}});
    }
    switch (delta.kind) {
      case Kind::kContent:
        return WriteText("text_delta", "text", delta.text);
      case Kind::kReasoning:
        return WriteText("thinking_delta", "thinking", delta.text);
      case Kind::kCallArguments:
        return WriteText("input_json_delta", "partial_json", delta.text);
      case Kind::kCallEnd:
        return CloseBlock();
      case Kind::kCallBegin:
        return true;
    }
    return true;
  }

  // By hand: there is one for nearly every token.
  bool WriteText(const char* type, const char* field, const std::string& text) {
    std::string data = StrCat("{\"type\":\"content_block_delta\",\"index\":", index_,
                              ",\"delta\":{\"type\":\"", type, "\",\"", field, "\":");
    AppendJsonString(data, text);
    data += "}}";
    return writer().WriteEvent(data, "content_block_delta");
  }

  bool CloseBlock() {
    if (!open_) return true;
    if (open_ == Kind::kReasoning) WriteText("signature_delta", "signature", "");
    open_.reset();
    return Write("content_block_stop", {{"type", "content_block_stop"}, {"index", index_++}});
  }

  Json StopReason(const Piece& all) const {
    if (all.finish == FinishReason::kLength) return "max_tokens";
    if (all.stop_string) return "stop_sequence";
    return calls_ ? "tool_use" : "end_turn";
  }
  static Json StopSequence(const Piece& all) {
    return all.stop_string ? Json(*all.stop_string) : Json();
  }

  bool Write(const char* name, const Json& data) { return writer().WriteEvent(Dump(data), name); }

  const AnswerOptions options_;
  bool streaming_ = false;
  bool calls_ = false;
  int index_ = 0;             // of the open block, or the next one
  std::optional<Kind> open_;  // kCallBegin for calls
  std::string arguments_;
};

}  // namespace

std::unique_ptr<AnswerSink> MakeAnswer(std::shared_ptr<ResponseWriter> writer,
                                       AnswerOptions options) {
  return std::make_unique<Answer>(std::move(writer), std::move(options));
}

std::string ErrorText(const ApiError& error) {
  std::string out = StrCat("{\"type\":\"error\",\"error\":{\"type\":\"", ErrorType(error.status),
                           "\",\"message\":");
  AppendJsonString(out, error.message);
  return out + "}}";
}

void SendMessagesError(ResponseWriter& writer, const ApiError& error) {
  SendError(writer, error, ErrorText);
}

}  // namespace staffel::api::anthropic
