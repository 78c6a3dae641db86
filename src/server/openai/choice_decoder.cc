#include "server/openai/choice_decoder.h"

#include <algorithm>
#include <utility>

namespace staffel::openai {

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
  if (std::binary_search(stop_tokens_.begin(), stop_tokens_.end(), token.token)) return;
  piece_.tokens.push_back(token);
  decoded_.clear();
  decode_.Push(token.token, &decoded_);
  if (stop_.Push(decoded_, &piece_.text)) {
    finished_ = true;
    piece_.finish = FinishReason::kStop;
  }
}

void ChoiceDecoder::Finish(FinishReason reason) {
  finished_ = true;
  decoded_.clear();
  decode_.Flush(&decoded_);
  bool stopped = stop_.Push(decoded_, &piece_.text) || stop_.Flush(&piece_.text);
  piece_.finish = stopped ? FinishReason::kStop : reason;
}

Piece ChoiceDecoder::Take() { return std::exchange(piece_, Piece()); }

}  // namespace staffel::openai
