#include "server/inference/answer.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "inference.pb.h"

namespace staffel::api::inference {
namespace {

v1::FinishReason FinishOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kCancelled:
    case FinishReason::kError:
      break;
  }
  return v1::FINISH_REASON_ABORT;
}

template <class Message>  // TokenLogprob, or one of its alternatives
void SetToken(const Tokenizer& tokenizer, TokenId token, float logprob, Message& out) {
  const std::string_view bytes = tokenizer.TokenBytes(token, /*special=*/true);
  out.set_token_id(static_cast<uint32_t>(token));
  out.set_token(bytes.data(), bytes.size());
  out.set_logprob(logprob);
}

void SetLogprob(const Tokenizer& tokenizer, TokenId token, float logprob,
                const std::vector<TokenLogprob>& top, v1::TokenLogprob& out) {
  SetToken(tokenizer, token, logprob, out);
  for (const TokenLogprob& other : top)
    SetToken(tokenizer, other.token, other.logprob, *out.add_top());
}

// What OpenChoice has to say, for each of the two kinds of choice. False: nothing.
bool SetBegin(const ChoiceResult& choice, const Tokenizer& tokenizer, v1::GenerateChoice& out) {
  out.set_text(choice.echo_text);
  if (choice.prompt_logprobs == nullptr) return !choice.echo_text.empty();
  for (size_t i = 0; i < choice.prompt_logprobs->size() && i + 1 < choice.prompt.size(); i++) {
    const PromptLogprob& entry = (*choice.prompt_logprobs)[i];
    SetLogprob(tokenizer, choice.prompt[i + 1], entry.logprob, entry.top,
               *out.add_prompt_logprobs());
  }
  return true;
}
bool SetBegin(const ChoiceResult& choice, const Tokenizer&, v1::ChatChoice& out) {
  out.mutable_delta()->set_content(choice.echo_text);
  return !choice.echo_text.empty();
}

// Adds the text of a piece. True: calls begin.
bool AddText(const Piece& piece, v1::GenerateChoice& out) {
  out.mutable_text()->append(piece.text);
  return false;
}
bool AddText(const Piece& piece, v1::ChatChoice& out) {
  v1::ChatDelta& delta = *out.mutable_delta();
  delta.mutable_content()->append(piece.text);
  bool begins = false;
  for (const answer::Delta& part : piece.deltas) {
    auto* calls = delta.mutable_tool_calls();
    switch (part.kind) {
      case answer::Delta::Kind::kReasoning:
        delta.mutable_reasoning_content()->append(part.text);
        break;
      case answer::Delta::Kind::kCallBegin: {
        v1::ToolCallDelta& call = *calls->Add();
        call.set_index(static_cast<uint32_t>(part.call));
        call.set_id(part.id);
        call.set_name(part.name);
        begins = true;
        break;
      }
      case answer::Delta::Kind::kCallArguments: {
        const auto index = static_cast<uint32_t>(part.call);
        if (calls->empty() || calls->rbegin()->index() != index) calls->Add()->set_index(index);
        calls->rbegin()->mutable_arguments()->append(part.text);
        break;
      }
      case answer::Delta::Kind::kContent:  // is the piece's text
      case answer::Delta::Kind::kCallEnd:
        break;
    }
  }
  return begins;
}

void SetRole(v1::GenerateChoice&) {}
void SetRole(v1::ChatChoice& choice) { choice.mutable_delta()->set_role("assistant"); }

void SetUsage(const Usage& usage, v1::Usage& out) {
  out.set_prompt_tokens(usage.prompt_tokens);
  out.set_completion_tokens(usage.completion_tokens);
  out.set_total_tokens(usage.prompt_tokens + usage.completion_tokens);
  out.set_cached_tokens(usage.cached_tokens);
  out.set_reasoning_tokens(usage.reasoning_tokens);
}

template <class Response>
class Answer final : public AnswerSink {
 public:
  Answer(std::shared_ptr<GrpcCall> call, AnswerOptions options)
      : call_(std::move(call)),
        options_(std::move(options)),
        tokenizer_(*options_.model->tokenizer) {}

  bool BeginStream() override {
    call_->Begin();
    return true;
  }

  bool OpenChoice(const ChoiceResult& choice) override {
    Response response = Begin();
    auto& out = AddChoice(choice.index, response);
    const bool ids = SetPromptIds(choice, response);
    if (!SetBegin(choice, tokenizer_, out) && !ids) return true;
    SetRoleOnce(out);
    return call_->Write(response);
  }

  bool WritePiece(int index, const Piece& piece) override {
    Response response = Begin();
    auto& out = AddChoice(index, response);
    SetRoleOnce(out);
    AddPiece(piece, out);
    return call_->Write(response);
  }

  void Complete(const std::vector<ChoiceResult>& choices, const Usage& usage) override {
    Response response = Begin();
    SetUsage(usage, *response.mutable_usage());
    if (!options_.stream) {
      for (const ChoiceResult& choice : choices) {
        SetPromptIds(choice, response);
        auto& out = AddChoice(choice.index, response);
        SetRoleOnce(out);
        SetBegin(choice, tokenizer_, out);
        AddPiece(choice.all, out);
      }
    }
    call_->Write(response);
    call_->Finish();
  }

  void Fail(const ApiError& error) override { call_->Fail(error); }

  void OnDisconnect(std::function<void()> callback) override {
    call_->OnDisconnect(std::move(callback));
  }

 private:
  Response Begin() const {
    Response response;
    response.set_id(options_.id);
    response.set_model(options_.model->names[0]);
    response.set_created(options_.created_unix_s);
    return response;
  }

  static auto& AddChoice(int index, Response& response) {
    auto& choice = *response.add_choices();
    choice.set_index(static_cast<uint32_t>(index));
    return choice;
  }

  template <class Choice>
  void SetRoleOnce(Choice& choice) {
    if (begun_.insert(static_cast<int>(choice.index())).second) SetRole(choice);
  }

  // Once for all choices: they have the same prompt.
  bool SetPromptIds(const ChoiceResult& choice, Response& response) {
    if (!options_.return_token_ids || std::exchange(prompt_told_, true)) return false;
    for (const TokenId token : choice.prompt)
      response.add_prompt_token_ids(static_cast<uint32_t>(token));
    return true;
  }

  template <class Choice>
  void AddPiece(const Piece& piece, Choice& out) {
    const int index = static_cast<int>(out.index());
    if (AddText(piece, out)) called_.insert(index);
    for (const GeneratedToken& token : piece.tokens) {
      if (options_.return_token_ids) out.add_token_ids(static_cast<uint32_t>(token.token));
      if (options_.logprobs)
        SetLogprob(tokenizer_, token.token, token.logprob, token.top, *out.add_logprobs());
    }
    if (!piece.finish) return;
    const bool calls = piece.finish == FinishReason::kStop && called_.contains(index);
    out.set_finish_reason(calls ? v1::FINISH_REASON_TOOL_CALLS : FinishOf(*piece.finish));
  }

  const std::shared_ptr<GrpcCall> call_;
  const AnswerOptions options_;
  const Tokenizer& tokenizer_;
  bool prompt_told_ = false;
  std::set<int> begun_;   // choices of which a message was sent
  std::set<int> called_;  // choices that have calls
};

}  // namespace

std::unique_ptr<AnswerSink> MakeGenerateAnswer(std::shared_ptr<GrpcCall> call,
                                               AnswerOptions options) {
  return std::make_unique<Answer<v1::GenerateResponse>>(std::move(call), std::move(options));
}

std::unique_ptr<AnswerSink> MakeChatAnswer(std::shared_ptr<GrpcCall> call, AnswerOptions options) {
  return std::make_unique<Answer<v1::ChatResponse>>(std::move(call), std::move(options));
}

v1::EmbedResponse ToMessage(const Embeddings& embeddings, const std::string& model) {
  v1::EmbedResponse response;
  response.set_model(model);
  for (const std::vector<float>& vector : embeddings.vectors)
    response.add_embeddings()->mutable_values()->Assign(vector.begin(), vector.end());
  SetUsage(embeddings.usage, *response.mutable_usage());
  return response;
}

}  // namespace staffel::api::inference
