// One answer in the making: tokens in, text out. Holds back incomplete characters and what may
// become a stop string. Used by one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "answer/delta.h"
#include "answer/parser.h"
#include "server/api/usage.h"
#include "staffel/request.h"
#include "staffel/tokenizer.h"
#include "text/decode_stream.h"
#include "text/stop_matcher.h"

namespace staffel::api {

// What a choice gained since the last piece was taken.
struct Piece {
  std::string text;  // valid UTF-8; where deltas are made, the content among them
  // What the text consists of, where reasoning and calls of tools are told apart from content.
  std::vector<answer::Delta> deltas;
  std::vector<GeneratedToken> tokens;  // the tokens read for it; a stop token is left out
  std::optional<FinishReason> finish;  // set on the last piece
  // With finish kStop, what ended the answer; neither where a grammar had nothing to add, or where
  // a call ended it.
  std::optional<std::string> stop_string;
  std::optional<GeneratedToken> stop_token;
  Usage usage;  // of the choice up to here; a sink gets it, Take leaves it out
  bool empty() const { return text.empty() && deltas.empty() && tokens.empty() && !finish; }
};

std::string_view FinishName(FinishReason reason);  // "stop", "length", "abort", "error"

// What becomes of a parsed answer beside being told apart.
struct AnswerRules {
  enum class Reasoning : uint8_t { kShown, kHidden, kAsContent };
  bool single_call = false;  // the answer is over with its first call
  Reasoning reasoning = Reasoning::kShown;
  std::string reasoning_open, reasoning_close;  // kAsContent: texts around it
};

class ChoiceDecoder {
 public:
  // `stop_tokens`: ascending; they end the answer and are not shown. The tokenizer must outlive the
  // decoder.
  ChoiceDecoder(const Tokenizer& tokenizer, const std::vector<std::string>& stop,
                std::vector<TokenId> stop_tokens, bool include_stop_text, bool skip_special_tokens);

  // Before the first token: tells reasoning and calls apart. Names of control tokens in `markers`
  // are told to the parser and are no text.
  void Parse(std::unique_ptr<answer::Parser> parser, std::vector<std::string_view> markers,
             AnswerRules rules);

  // Takes the tokens and the finish of one event; tokens after a stop string are ignored.
  void Apply(const SeqEvent& event);

  // True once the answer is complete: by the engine's word, or by a stop string.
  bool finished() const { return finished_; }
  // A stop string or the one call ended it while the engine still works on it.
  bool must_cancel() const { return finished_ && !engine_finished_; }

  Piece Take();
  int completion_tokens() const { return completion_tokens_; }
  int reasoning_tokens() const { return reasoning_tokens_; }  // of these, as far as is told apart

 private:
  void Push(const GeneratedToken& token);
  void Finish(FinishReason reason);
  void Stopped();  // by a stop string
  void Give(std::string_view text);
  bool DropBehindCall();  // what stands behind the one call; true if it has ended
  void EndBehindCall();   // the answer, then
  void ApplyRules(std::vector<answer::Delta>& deltas);

  // A control token's name at a place of the decoded text.
  struct Marker {
    size_t offset = 0;
    std::string text;
  };

  const Tokenizer& tokenizer_;
  const bool skip_special_tokens_;
  std::vector<TokenId> stop_tokens_;
  std::unique_ptr<answer::Parser> parser_;  // null: all text is content
  std::vector<std::string_view> markers_;
  AnswerRules rules_;
  bool reasoning_is_open_ = false;      // kAsContent
  std::deque<Marker> pending_markers_;  // behind text that the stop matcher holds back
  size_t decoded_bytes_ = 0, given_bytes_ = 0;
  int reasoning_tokens_ = 0;
  DecodeStream decode_;
  StopMatcher stop_;
  std::string decoded_;  // of the token at hand
  std::string passed_;   // of it and those before, what the stop matcher let through
  Piece piece_;
  int completion_tokens_ = 0;
  std::optional<GeneratedToken> stop_token_;  // the last token was this one
  bool finished_ = false;
  bool engine_finished_ = false;
};

}  // namespace staffel::api
