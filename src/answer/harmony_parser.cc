#include "answer/harmony_parser.h"

#include <algorithm>
#include <utility>

#include "answer/cursor.h"
#include "answer/markers.h"
#include "base/strings.h"

namespace staffel::answer {
namespace {

using Kind = Delta::Kind;

constexpr size_t kHeaderBytesMax = 1024;
constexpr std::string_view kRecipient = "to=";
constexpr std::string_view kFunctions = "functions.";
// Each ends a body; the first two are also the beginning of the next header.
constexpr std::string_view kBodyEnds[] = {kHarmonyStart, kHarmonyChannel, kHarmonyEnd, kHarmonyCall,
                                          kHarmonyReturn};

// The word behind `before`, up to white space or a marker.
std::string_view WordBehind(std::string_view header, std::string_view before) {
  const size_t found = header.find(before);
  if (found == std::string_view::npos) return {};
  header.remove_prefix(found + before.size());
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header.substr(0, std::min(header.find_first_of(" \t\r\n<"), header.size()));
}

}  // namespace

HarmonyParser::HarmonyParser(ParserOptions options)
    : options_(std::move(options)), text_(options_.show_control) {}

void HarmonyParser::Push(std::string_view text, bool control, std::vector<Delta>* out) {
  out_ = out;
  hides_ = hides_ || (control && !options_.show_control);
  text_.Append(text, control);
  while (Step()) {
  }
}

void HarmonyParser::Finish(std::vector<Delta>* out) {
  out_ = out;
  complete_ = true;
  while (Step()) {
  }
  if (in_body_) Close();
}

bool HarmonyParser::Step() { return in_body_ ? ReadBody() : ReadHeader(); }

bool HarmonyParser::ReadHeader() {
  if (text_.view().empty()) return false;
  Cursor cursor(text_.view(), complete_);
  cursor.Space();
  const size_t begin = cursor.position();
  bool is_header = false;
  for (std::string_view start : {kHarmonyStart, kHarmonyChannel, kHarmonyMessage, kRecipient}) {
    is_header = is_header || cursor.Accept(start);
  }
  if (is_header) {
    cursor.Seek(begin);
    const std::string header(cursor.Until(kHarmonyMessage, kHeaderBytesMax));
    if (cursor.ok()) {
      text_.Drop(cursor.position());
      Open(header);
      return true;
    }
  } else if (cursor.AtEnd()) {  // white space behind the last message
    text_.Drop(cursor.position());
    return false;
  }
  if (cursor.state() == Cursor::State::kMore) return false;
  // The model has left its format: what it writes is for the client.
  kind_ = Kind::kContent;
  in_body_ = true;
  Give(1);
  return true;
}

bool HarmonyParser::IsTool(std::string_view name) const {
  return std::any_of(options_.tools.begin(), options_.tools.end(),
                     [&](const ToolSignature& tool) { return tool.name == name; });
}

void HarmonyParser::Open(std::string_view header) {
  in_body_ = true;
  const std::string_view channel = WordBehind(header, kHarmonyChannel);
  std::string_view recipient = WordBehind(header, kRecipient);
  const bool is_function = recipient.starts_with(kFunctions);
  if (is_function) recipient.remove_prefix(kFunctions.size());
  const bool is_call = options_.formats.calls != CallFormat::kNone && !recipient.empty() &&
                       (is_function || IsTool(recipient));
  if (is_call) {
    kind_ = Kind::kCallArguments;
    call_is_empty_ = true;
    Append(*out_, {Kind::kCallBegin, "", calls_,
                   CallId(CallFormat::kHarmony, options_.id_seed, calls_), std::string(recipient)});
    return;
  }
  const bool is_reasoning =
      options_.formats.reasoning != ReasoningFormat::kNone && channel == "analysis";
  kind_ = is_reasoning ? Kind::kReasoning : Kind::kContent;
}

void HarmonyParser::Give(size_t bytes) {
  if (bytes == 0) return;
  const bool is_call = kind_ == Kind::kCallArguments;
  call_is_empty_ = false;
  Append(*out_, {kind_, text_.Take(bytes), is_call ? calls_ : -1});
}

void HarmonyParser::Close() {
  in_body_ = false;
  if (kind_ != Kind::kCallArguments) return;
  if (call_is_empty_) Append(*out_, {Kind::kCallArguments, "{}", calls_});
  Append(*out_, {Kind::kCallEnd, "", calls_});
  ++calls_;
}

bool HarmonyParser::ReadBody() {
  const std::string_view text = text_.view();
  size_t body = text.size();
  std::string_view ended_by;
  for (size_t i = text.find('<'); i < body; i = text.find('<', i + 1)) {
    for (std::string_view end : kBodyEnds) {
      const std::string_view rest = text.substr(i, end.size());
      // Where markers are control tokens, text that spells one is text.
      if (hides_ && !text_.IsHidden(i)) break;
      if (rest == end) {
        ended_by = end;
        body = i;
        break;
      }
      if (!complete_ && end.starts_with(rest)) body = i;
    }
  }
  Give(body);
  if (ended_by.empty()) return false;
  if (ended_by != kHarmonyStart && ended_by != kHarmonyChannel) text_.Drop(ended_by.size());
  Close();
  return true;
}

}  // namespace staffel::answer
