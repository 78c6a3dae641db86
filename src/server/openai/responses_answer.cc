#include "server/openai/responses_answer.h"

#include <optional>
#include <utility>
#include <vector>

#include "answer/delta.h"
#include "base/strings.h"
#include "server/api/answer_deltas.h"
#include "server/api/json_parse.h"
#include "server/api/json_text.h"
#include "text/utf8.h"

namespace staffel::api::openai {
namespace {

using Kind = answer::Delta::Kind;

Json TokenJson(const Tokenizer& tokenizer, TokenId token, float logprob) {
  const std::string_view bytes = tokenizer.TokenBytes(token, /*special=*/true);
  Json list = Json::array();
  for (char byte : bytes) list.push_back(static_cast<uint8_t>(byte));
  return {{"token", ToValidUtf8(bytes)}, {"logprob", logprob}, {"bytes", std::move(list)}};
}

Json LogprobsJson(const Tokenizer& tokenizer, const std::vector<GeneratedToken>& tokens) {
  Json out = Json::array();
  for (const GeneratedToken& token : tokens) {
    Json entry = TokenJson(tokenizer, token.token, token.logprob);
    Json& top = entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& other : token.top)
      top.push_back(TokenJson(tokenizer, other.token, other.logprob));
    out.push_back(std::move(entry));
  }
  return out;
}

Json UsageJson(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

class Answer final : public HttpSink {
 public:
  Answer(std::shared_ptr<ResponseWriter> writer, ResponsesOptions options)
      : HttpSink(std::move(writer)), options_(std::move(options)) {}

  bool BeginStream() override {
    streaming_ = true;
    writer().BeginStream();
    return WriteResponse("response.created", Response("in_progress", Json())) &&
           WriteResponse("response.in_progress", Response("in_progress", Json()));
  }

  bool WritePiece(int, const Piece& piece) override {
    Take(piece);
    return std::exchange(written_, true);
  }

  void Complete(const std::vector<ChoiceResult>& choices, const Usage& usage) override {
    const Piece& all = choices.front().all;
    if (!options_.stream) Take(all);
    const bool cut = all.finish != FinishReason::kStop;
    CloseItem(cut ? "incomplete" : "completed");
    Json response = Response(cut ? "incomplete" : "completed", UsageJson(usage));
    if (cut) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (!options_.stream) return writer().Send(200, "application/json", Dump(response));
    WriteResponse(cut ? "response.incomplete" : "response.completed", std::move(response));
    writer().EndStream();
  }

  void Fail(const ApiError& error) override {
    if (!streaming_) return SendError(writer(), error);
    CloseItem("incomplete");
    Json response = Response("failed", Json());
    response["error"] = {{"code", error.status < 500 ? "invalid_prompt" : "server_error"},
                         {"message", error.message}};
    WriteResponse("response.failed", std::move(response));
    writer().EndStream();
  }

 private:
  Json Response(const char* status, Json usage) const {
    Json response = {{"id", StrCat("resp_", options_.id)},
                     {"object", "response"},
                     {"created_at", options_.created_unix_s},
                     {"status", status},
                     {"error", nullptr},
                     {"incomplete_details", nullptr},
                     {"model", options_.model},
                     {"output", items_}};
    response.update(options_.echoed);
    response["usage"] = std::move(usage);
    return response;
  }

  void Take(const Piece& piece) {
    const std::vector<answer::Delta> deltas = DeltasOf(piece);
    pending_logprobs_ =
        options_.logprobs ? LogprobsJson(*options_.tokenizer, piece.tokens) : Json::array();
    for (const answer::Delta& delta : deltas) TakeDelta(delta);
  }

  void TakeDelta(const answer::Delta& delta) {
    const bool call = delta.kind != Kind::kContent && delta.kind != Kind::kReasoning;
    const Kind run = call ? Kind::kCallBegin : delta.kind;
    if (delta.kind == Kind::kCallBegin || open_ != run) {
      CloseItem("completed");
      OpenItem(delta, run);
    }
    if (delta.kind == Kind::kCallEnd) return CloseItem("completed");
    if (delta.kind == Kind::kCallBegin) return;
    text_ += delta.text;
    if (run == Kind::kCallBegin)
      return WriteText("response.function_call_arguments.delta", "delta", delta.text, false, "");
    if (run == Kind::kReasoning)
      return WriteText("response.reasoning_text.delta", "delta", delta.text, true, "");
    for (const Json& entry : pending_logprobs_) logprobs_.push_back(entry);
    WriteText("response.output_text.delta", "delta", delta.text, true,
              StrCat(",\"logprobs\":", Dump(std::exchange(pending_logprobs_, Json::array()))));
  }

  void OpenItem(const answer::Delta& delta, Kind run) {
    open_ = run;
    const std::string number = StrCat(options_.id, "-", items_.size());
    Json item;
    if (run == Kind::kCallBegin) {
      item = {{"id", StrCat("fc_", number)}, {"type", "function_call"}, {"status", "in_progress"},
              {"call_id", delta.id},         {"name", delta.name},      {"arguments", ""}};
    } else if (run == Kind::kReasoning) {
      item = {{"id", StrCat("rs_", number)},
              {"type", "reasoning"},
              {"status", "in_progress"},
              {"summary", Json::array()},
              {"content", Json::array()}};
    } else {
      item = {{"id", StrCat("msg_", number)},
              {"type", "message"},
              {"status", "in_progress"},
              {"role", "assistant"},
              {"content", Json::array()}};
    }
    items_.push_back(std::move(item));
    Write("response.output_item.added", {{"output_index", index()}, {"item", items_.back()}});
    if (run != Kind::kCallBegin)
      Write("response.content_part.added", Placed({{"content_index", 0}, {"part", Part()}}));
  }

  void CloseItem(const char* status) {
    if (!open_) return;
    Json& item = items_.back();
    if (open_ == Kind::kCallBegin) {
      WriteText("response.function_call_arguments.done", "arguments", text_, false,
                StrCat(",\"name\":", Dump(item["name"])));
      item["arguments"] = text_;
    } else {
      const bool reasoning = open_ == Kind::kReasoning;
      WriteText(reasoning ? "response.reasoning_text.done" : "response.output_text.done", "text",
                text_, true, reasoning ? "" : StrCat(",\"logprobs\":", Dump(logprobs_)));
      item["content"].push_back(Part());
      Write("response.content_part.done", Placed({{"content_index", 0}, {"part", Part()}}));
    }
    item["status"] = status;
    Write("response.output_item.done", {{"output_index", index()}, {"item", item}});
    text_.clear();
    logprobs_ = Json::array();
    open_.reset();
  }

  // The only part of the open item as it is now.
  Json Part() const {
    if (open_ == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text_}};
    return {{"type", "output_text"},
            {"text", text_},
            {"annotations", Json::array()},
            {"logprobs", logprobs_}};
  }

  size_t index() const { return items_.size() - 1; }

  Json Placed(Json data) const {
    Json out = {{"item_id", items_.back()["id"]}, {"output_index", index()}};
    out.update(data);
    return out;
  }

  // By hand: there is one for nearly every token.
  void WriteText(const char* type, const char* field, const std::string& text, bool in_part,
                 const std::string& more) {
    if (!options_.stream) return;
    std::string data = StrCat("{\"type\":\"", type, "\",\"sequence_number\":", sequence_number_++,
                              ",\"item_id\":");
    AppendJsonString(data, items_.back()["id"].get_ref<const std::string&>());
    StrAppend(data, ",\"output_index\":", index(), in_part ? ",\"content_index\":0" : "", ",\"",
              field, "\":");
    AppendJsonString(data, text);
    StrAppend(data, more, "}");
    written_ = writer().WriteEvent(data, type) && written_;
  }

  bool Write(const char* type, const Json& data) {
    if (!options_.stream) return true;
    Json event = {{"type", type}, {"sequence_number", sequence_number_++}};
    event.update(data);
    const bool written = writer().WriteEvent(Dump(event), type);
    written_ = written_ && written;
    return written;
  }
  bool WriteResponse(const char* type, Json response) {
    return Write(type, {{"response", std::move(response)}});
  }

  const ResponsesOptions options_;
  bool streaming_ = false;
  bool written_ = true;  // no event was lost since it was asked last
  int64_t sequence_number_ = 0;
  Json items_ = Json::array();
  std::optional<Kind> open_;  // the last item's; kCallBegin for calls
  std::string text_;          // of the open item
  Json logprobs_ = Json::array(), pending_logprobs_ = Json::array();
};

}  // namespace

std::unique_ptr<AnswerSink> MakeResponsesAnswer(std::shared_ptr<ResponseWriter> writer,
                                                ResponsesOptions options) {
  return std::make_unique<Answer>(std::move(writer), std::move(options));
}

}  // namespace staffel::api::openai
