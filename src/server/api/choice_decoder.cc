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
    : tokenizer_(tokenizer),
      skip_special_tokens_(skip_special_tokens),
      stop_tokens_(std::move(stop_tokens)),
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
    stop_token_ = token;
    return;
  }
  piece_.tokens.push_back(token);
  if (parser_ != nullptr && parser_->in_reasoning()) reasoning_tokens_++;
  // Shown control tokens are text, in which the parser finds markers as well.
  if (parser_ != nullptr && skip_special_tokens_ && tokenizer_.IsControl(token.token)) {
    const std::string_view name = tokenizer_.TokenBytes(token.token, /*special=*/true);
    if (std::find(markers_.begin(), markers_.end(), name) != markers_.end()) {
      pending_markers_.push_back({decoded_bytes_, std::string(name)});
      Give("");
      return EndBehindCall();
    }
  }
  decoded_.clear();
  decode_.Push(token.token, &decoded_);
  decoded_bytes_ += decoded_.size();
  passed_.clear();
  const bool stopped = stop_.Push(decoded_, &passed_);
  Give(passed_);
  if (stopped) Stopped();
  EndBehindCall();
}

bool ChoiceDecoder::DropBehindCall() {
  if (!rules_.single_call) return false;
  std::vector<answer::Delta>& deltas = piece_.deltas;
  const auto end = std::find_if(deltas.begin(), deltas.end(), [](const answer::Delta& delta) {
    return delta.kind == answer::Delta::Kind::kCallEnd;
  });
  if (end == deltas.end()) return false;
  deltas.erase(end + 1, deltas.end());
  return true;
}

void ChoiceDecoder::EndBehindCall() {
  if (!DropBehindCall()) return;
  finished_ = true;
  piece_.finish = FinishReason::kStop;
  piece_.stop_string.reset();
}

// Text that the client is to get, in order.
void ChoiceDecoder::Give(std::string_view text) {
  if (parser_ == nullptr) {
    piece_.text += text;
    return;
  }
  while (!pending_markers_.empty() &&
         pending_markers_.front().offset <= given_bytes_ + text.size()) {
    const size_t before = pending_markers_.front().offset - given_bytes_;
    if (before > 0) parser_->Push(text.substr(0, before), /*control=*/false, &piece_.deltas);
    parser_->Push(pending_markers_.front().text, /*control=*/true, &piece_.deltas);
    text.remove_prefix(before);
    given_bytes_ += before;
    pending_markers_.pop_front();
  }
  given_bytes_ += text.size();
  if (!text.empty()) parser_->Push(text, /*control=*/false, &piece_.deltas);
}

void ChoiceDecoder::Stopped() {
  if (parser_ != nullptr) parser_->Finish(&piece_.deltas);
  finished_ = true;
  piece_.finish = FinishReason::kStop;
  piece_.stop_string = stop_.stops()[*stop_.matched()];
}

void ChoiceDecoder::Finish(FinishReason reason) {
  finished_ = true;
  decoded_.clear();
  decode_.Flush(&decoded_);
  decoded_bytes_ += decoded_.size();
  passed_.clear();
  const bool stopped = stop_.Push(decoded_, &passed_) || stop_.Flush(&passed_);
  Give(passed_);
  if (stopped) return Stopped();
  if (parser_ != nullptr) parser_->Finish(&piece_.deltas);
  DropBehindCall();
  piece_.finish = reason;
  if (reason == FinishReason::kStop) piece_.stop_token = stop_token_;
}

void ChoiceDecoder::Parse(std::unique_ptr<answer::Parser> parser,
                          std::vector<std::string_view> markers, AnswerRules rules) {
  parser_ = std::move(parser);
  rules_ = std::move(rules);
  markers_ = std::move(markers);
}

// Reasoning as the client wants it.
void ChoiceDecoder::ApplyRules(std::vector<answer::Delta>& deltas) {
  using Kind = answer::Delta::Kind;
  if (rules_.reasoning == AnswerRules::Reasoning::kShown) return;
  std::vector<answer::Delta> kept;
  for (answer::Delta& delta : deltas) {
    if (delta.kind != Kind::kReasoning) {
      if (std::exchange(reasoning_is_open_, false))
        answer::Append(kept, {Kind::kContent, rules_.reasoning_close});
      answer::Append(kept, std::move(delta));
    } else if (rules_.reasoning == AnswerRules::Reasoning::kAsContent) {
      if (!std::exchange(reasoning_is_open_, true)) delta.text.insert(0, rules_.reasoning_open);
      delta.kind = Kind::kContent;
      answer::Append(kept, std::move(delta));
    }
  }
  deltas = std::move(kept);
}

Piece ChoiceDecoder::Take() {
  ApplyRules(piece_.deltas);
  for (const answer::Delta& delta : piece_.deltas) {
    if (delta.kind == answer::Delta::Kind::kContent) piece_.text += delta.text;
  }
  return std::exchange(piece_, Piece());
}

}  // namespace staffel::api
