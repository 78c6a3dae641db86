#include "server/api/choice_decoder.h"

#include <algorithm>
#include <utility>

namespace staffel::api {

std::string_view FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

ChoiceDecoder::ChoiceDecoder(const Tokenizer& tokenizer, const std::vector<std::string>& stop,
                             std::vector<TokenId> stop_tokens, bool include_stop_text,
                             bool skip_special_tokens)
    : stop_tokens_(std::move(stop_tokens)),
      decode_(tokenizer, {.special = !skip_special_tokens}),
      stop_(stop, include_stop_text) {}

void ChoiceDecoder::Apply(const SeqEvent& event) {
  if (event.finish) engine_finished_ = true;
  for (const GeneratedToken& token : event.tokens) {
    if (finished_) return;
    Push(token);
  }
  if (event.finish && !finished_) Finish(*event.finish);
}

void ChoiceDecoder::Push(const GeneratedToken& token) {
  completion_tokens_++;
  stop_token_.reset();
  if (std::binary_search(stop_tokens_.begin(), stop_tokens_.end(), token.token)) {
    stop_token_ = token.token;
    return;
  }
  piece_.tokens.push_back(token);
  decoded_.clear();
  decode_.Push(token.token, &decoded_);
  if (stop_.Push(decoded_, &piece_.text)) Stopped();
}

void ChoiceDecoder::Stopped() {
  finished_ = true;
  piece_.finish = FinishReason::kStop;
  piece_.stop_string = stop_.stops()[*stop_.matched()];
}

void ChoiceDecoder::Finish(FinishReason reason) {
  finished_ = true;
  decoded_.clear();
  decode_.Flush(&decoded_);
  if (stop_.Push(decoded_, &piece_.text) || stop_.Flush(&piece_.text)) return Stopped();
  piece_.finish = reason;
  if (reason == FinishReason::kStop) piece_.stop_token = stop_token_;
}

Piece ChoiceDecoder::Take() { return std::exchange(piece_, Piece()); }

}  // namespace staffel::api
