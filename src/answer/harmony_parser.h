// GPT-OSS: an answer is a run of messages, each with a header (channel, recipient) and a body. The
// text begins behind <|start|>assistant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "answer/parser.h"
#include "answer/pending_text.h"

namespace staffel::answer {

// Bodies of the channel analysis are reasoning, those for functions.NAME are calls of NAME, all
// others are content. Without calls (CallFormat::kNone) bodies for a recipient are content, without
// reasoning (ReasoningFormat::kNone) analysis is. What is no header where one must stand is
// content.
class HarmonyParser final : public Parser {
 public:
  explicit HarmonyParser(ParserOptions options);

  void Push(std::string_view text, bool control, std::vector<Delta>* out) override;
  void Finish(std::vector<Delta>* out) override;
  bool in_reasoning() const override { return in_body_ && kind_ == Delta::Kind::kReasoning; }

 private:
  bool Step();
  bool ReadHeader();
  bool ReadBody();
  void Open(std::string_view header);
  void Give(size_t bytes);
  void Close();
  bool IsTool(std::string_view name) const;

  const ParserOptions options_;
  PendingText text_;
  std::vector<Delta>* out_ = nullptr;  // during a call
  bool complete_ = false;
  bool in_body_ = false;
  bool hides_ = false;  // control tokens have come, that clients do not see
  Delta::Kind kind_ = Delta::Kind::kContent;  // of the body
  bool call_is_empty_ = false;
  int calls_ = 0;
};

}  // namespace staffel::answer
