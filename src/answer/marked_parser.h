// Answers whose reasoning stands between markers and whose calls stand in the text: all formats but
// harmony.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "answer/call_syntax.h"
#include "answer/parser.h"
#include "answer/pending_text.h"

namespace staffel::answer {

class MarkedParser final : public Parser {
 public:
  explicit MarkedParser(ParserOptions options);
  // Another syntax than that of the format.
  MarkedParser(ParserOptions options, std::unique_ptr<CallSyntax> syntax);

  void Push(std::string_view text, bool control, std::vector<Delta>* out) override;
  void Finish(std::vector<Delta>* out) override;
  bool in_reasoning() const override { return state_ == State::kReasoning; }

 private:
  enum class State : uint8_t {
    kStart,            // nothing but white space so far
    kReasoning,        //
    kAfterReasoning,   // its end marker has come
    kWhole,            // the content may be nothing but calls without markers
    kText,             //
    kHead,             // what may be a call, behind lead_ bytes of white space
    kArguments,        // JSON
    kBrokenArguments,  // no JSON any more
    kXmlArguments,     //
    kTail,             // behind the arguments
  };
  // Of a search for markers: bytes in front of what was found or must wait.
  struct Found {
    size_t text_bytes = 0, space_bytes = 0;
    bool marker = false;
    size_t marker_bytes = 0;  // 0: a bare bracket
  };

  void Run();
  bool Step();  // false: it needs more text
  bool ReadStart();
  bool ReadReasoning();
  bool ReadAfterReasoning();
  bool ReadWhole();
  bool ReadText();
  bool ReadHead();
  bool ReadArguments();
  bool ReadBrokenArguments();
  bool ReadXmlArguments();
  bool ReadTail();

  bool MayBeWhole();
  bool GiveWholeCalls();
  bool TrimLeading();
  Found Search(const std::vector<std::string_view>& markers, bool bare) const;
  void Give(Delta::Kind kind, size_t bytes);
  void Begin(const CallHead& head, const CallPlace& place);
  void GiveArguments(std::string text);
  void EndCall();
  bool IsString(std::string_view parameter) const;
  size_t FindXmlEnd(std::string_view value, bool is_string);
  void GiveXmlParameter(std::string_view key, std::string_view value, bool complete);

  const ParserOptions options_;
  const std::unique_ptr<CallSyntax> syntax_;  // null: there are no calls
  std::unique_ptr<CallSyntax> bare_syntax_;   // of kWhole; null: what has no marker is no call
  std::vector<std::string_view> reasoning_opens_, reasoning_closes_, text_markers_;
  PendingText text_;
  std::vector<Delta>* out_ = nullptr;  // during a call
  State state_ = State::kStart;
  bool complete_ = false;
  bool trim_ = false;          // white space that comes next belongs to a marker
  bool line_is_blank_ = true;  // of the content so far
  bool begun_ = false;         // there was content, or a call
  bool whole_begun_ = false;   // kWhole: a call has begun
  bool response_tag_ = false;  // Granite's <response> is open
  size_t lead_ = 0;

  int calls_ = 0;
  bool call_open_ = false;
  CallPlace place_;
  std::string call_name_;
  JsonTracker tracker_;
  bool xml_first_ = false;
  size_t xml_searched_ = 0;  // of the value at hand
  int xml_tries_ = 0;        // of it: ends that were none
};

}  // namespace staffel::answer
