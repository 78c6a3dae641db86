#include "answer/marked_parser.h"

#include <algorithm>
#include <utility>

#include "answer/markers.h"

namespace staffel::answer {
namespace {

using Kind = Delta::Kind;

// White space in front of a marker goes with it, but so much at most: it is held back until then.
constexpr size_t kSpaceBytesMax = 1024;

constexpr std::string_view kXmlParameter = "<parameter=";
constexpr std::string_view kXmlParameterEnd = "</parameter>";
constexpr std::string_view kXmlFunctionEnd = "</function>";

// Markers within one JSON value of a parameter that are looked at as its possible end: each look
// costs the length of the value.
constexpr int kXmlTriesMax = 32;

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

std::unique_ptr<CallSyntax> SyntaxOf(const ParserOptions& options) {
  if (options.formats.calls == CallFormat::kNone) return nullptr;
  return MakeCallSyntax(options.formats.calls, options.tools);
}

// The bytes at the end of `text` that `marker` may begin with.
size_t PartialAtEnd(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (text.ends_with(marker.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

MarkedParser::MarkedParser(ParserOptions options, std::unique_ptr<CallSyntax> syntax)
    : options_(std::move(options)), syntax_(std::move(syntax)), text_(options_.show_control) {
  if (syntax_ != nullptr) text_markers_ = syntax_->begins();
}

MarkedParser::MarkedParser(ParserOptions options)
    : options_(std::move(options)), syntax_(SyntaxOf(options_)), text_(options_.show_control) {
  const ReasoningFormat reasoning = options_.formats.reasoning;
  if (const ReasoningMarkers markers = MarkersOf(reasoning); !markers.open.empty()) {
    reasoning_opens_ = {markers.open};
    reasoning_closes_ = {markers.close};
  }
  if (reasoning == ReasoningFormat::kGranite) {
    reasoning_opens_.insert(reasoning_opens_.end(), {kThoughtProcess, kThoughtProcessShort});
  }
  if (syntax_ == nullptr) return;
  // Bare calls that a grammar writes need no other beginning.
  if (!options_.held_calls || !syntax_->bare()) text_markers_ = syntax_->begins();
  if (!options_.held_calls && !syntax_->bare() && !options_.tools.empty())
    bare_syntax_ = MakeBareSyntax(options_.tools);
}

void MarkedParser::Push(std::string_view text, bool control, std::vector<Delta>* out) {
  out_ = out;
  text_.Append(text, control);
  Run();
}

void MarkedParser::Finish(std::vector<Delta>* out) {
  out_ = out;
  complete_ = true;
  Run();
  if (call_open_) EndCall();
}

void MarkedParser::Run() {
  while (Step()) {
  }
}

bool MarkedParser::Step() {
  switch (state_) {
    case State::kStart:
      return ReadStart();
    case State::kReasoning:
      return ReadReasoning();
    case State::kAfterReasoning:
      return ReadAfterReasoning();
    case State::kWhole:
      return ReadWhole();
    case State::kText:
      return ReadText();
    case State::kHead:
      return ReadHead();
    case State::kArguments:
      return ReadArguments();
    case State::kBrokenArguments:
      return ReadBrokenArguments();
    case State::kXmlArguments:
      return ReadXmlArguments();
    case State::kTail:
      return ReadTail();
  }
  return false;
}

// --- reasoning ---

bool MarkedParser::ReadStart() {
  Cursor cursor(text_.view(), complete_);
  bool opened = false, in_words = false;
  if (!reasoning_opens_.empty()) {
    cursor.Space();
    for (std::string_view open : reasoning_opens_) {
      if (opened || !cursor.Accept(open)) continue;
      opened = true;
      in_words = open == kThoughtProcess || open == kThoughtProcessShort;
    }
    if (cursor.state() == Cursor::State::kMore) return false;
  }
  if (in_words) reasoning_closes_ = {kResponse, kResponseShort};
  // Some models open again what the prompt has opened.
  if (opened) text_.Drop(cursor.position());
  trim_ = opened || options_.in_reasoning;
  state_ = trim_ ? State::kReasoning : State::kWhole;
  return true;
}

bool MarkedParser::ReadReasoning() {
  if (!TrimLeading()) return false;
  const Found found = Search(reasoning_closes_, /*bare=*/false);
  Give(Kind::kReasoning, found.text_bytes);
  if (!found.marker) return false;
  text_.Drop(found.space_bytes + found.marker_bytes);
  state_ = State::kAfterReasoning;
  return true;
}

bool MarkedParser::ReadAfterReasoning() {
  if (options_.formats.reasoning == ReasoningFormat::kGranite) {
    Cursor cursor(text_.view(), complete_);
    cursor.Space();
    if (cursor.Accept(kResponseOpen)) {
      response_tag_ = true;
      text_.Drop(cursor.position());
      text_markers_.push_back(kResponseClose);
    }
    if (cursor.state() == Cursor::State::kMore) return false;
  }
  trim_ = true;
  line_is_blank_ = true;
  state_ = State::kWhole;
  return true;
}

// --- content ---

bool MarkedParser::ReadWhole() {
  if (bare_syntax_ != nullptr && MayBeWhole()) {
    if (!complete_) return false;
    if (GiveWholeCalls()) return false;
  }
  state_ = State::kText;
  return true;
}

// Whether the content so far is white space, or white space and the beginning of a call.
bool MarkedParser::MayBeWhole() {
  if (whole_begun_) return true;
  const std::string_view text = text_.view();
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (std::min(first, text.size()) > kSpaceBytesMax) return false;
  if (first == std::string_view::npos) return true;
  constexpr std::string_view kFence = "```";
  const std::string_view rest = text.substr(first);
  if (rest[0] != '{' && rest[0] != '[' && !rest.starts_with(kFence.substr(0, rest.size())))
    return false;
  Cursor cursor(rest, complete_);
  CallPlace place;
  CallHead head;
  bare_syntax_->ReadHead(cursor, /*first=*/true, &place, &head);
  whole_begun_ = cursor.ok();
  return cursor.ok() || cursor.state() == Cursor::State::kMore;
}

namespace {

// Whether a text is complete JSON values, perhaps in a code fence.
bool IsJsonValues(std::string_view text) {
  const auto trim = [&] {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  };
  trim();
  if (text.starts_with("```")) {
    text.remove_prefix(text.starts_with("```json") ? 7 : 3);
    const size_t end = text.rfind("```");
    if (end == std::string_view::npos) return false;
    text = text.substr(0, end);
  }
  for (trim(); !text.empty(); trim()) {
    if (text[0] != '{' && text[0] != '[') return false;
    JsonTracker tracker;
    JsonTracker::Step step = JsonTracker::Step::kInside;
    size_t size = 0;
    while (size < text.size() && step == JsonTracker::Step::kInside)
      step = tracker.Next(text[size++]);
    if (step != JsonTracker::Step::kDone || !IsJson(text.substr(0, size))) return false;
    text.remove_prefix(size);
  }
  return true;
}

}  // namespace

// At the end of the answer. False: it is not nothing but calls, and nothing was done.
bool MarkedParser::GiveWholeCalls() {
  if (!IsJsonValues(text_.view())) return false;
  ParserOptions options = options_;
  options.formats.reasoning = ReasoningFormat::kNone;
  options.show_control = true;
  MarkedParser parser(std::move(options), MakeBareSyntax(options_.tools));
  std::vector<Delta> deltas;
  parser.Push(text_.view(), /*control=*/false, &deltas);
  parser.Finish(&deltas);
  Answer answer;
  for (const Delta& delta : deltas) answer.Add(delta);
  const bool space_only = answer.content.find_first_not_of(" \t\r\n") == std::string::npos;
  if (!space_only || answer.calls.empty()) return false;
  for (Delta& delta : deltas) {
    if (delta.kind != Kind::kContent) Append(*out_, std::move(delta));
  }
  text_.Drop(text_.view().size());
  return true;
}

bool MarkedParser::ReadText() {
  if (!TrimLeading()) return false;
  const bool bare = syntax_ != nullptr && syntax_->bare() && !(options_.held_calls && begun_);
  const Found found = Search(text_markers_, bare);
  Give(Kind::kContent, found.text_bytes);
  if (!found.marker) return false;
  if (response_tag_ && text_.view().substr(found.space_bytes).starts_with(kResponseClose)) {
    response_tag_ = false;
    text_markers_.pop_back();
    text_.Drop(found.space_bytes + found.marker_bytes);
    trim_ = true;
    return true;
  }
  lead_ = found.space_bytes;
  state_ = State::kHead;
  return true;
}

// True if there is text that is not white space to be left out.
bool MarkedParser::TrimLeading() {
  if (!trim_) return !text_.view().empty();
  const size_t first = text_.view().find_first_not_of(" \t\r\n");
  text_.Drop(std::min(first, text_.view().size()));
  if (first == std::string_view::npos) return false;
  trim_ = false;
  return true;
}

MarkedParser::Found MarkedParser::Search(const std::vector<std::string_view>& markers,
                                         bool bare) const {
  const std::string_view text = text_.view();
  Found found;
  if (markers.empty() && !bare) return {.text_bytes = text.size()};
  size_t end = text.size();  // of text that is no marker
  bool blank = line_is_blank_;
  for (size_t i = 0; i < text.size() && !found.marker && end == text.size(); ++i) {
    const char c = text[i];
    if (bare && blank && (c == '{' || c == '[')) {
      found.marker = true;
      end = i;
      break;
    }
    if (options_.held_calls && !IsSpace(c)) bare = false;
    for (std::string_view marker : markers) {
      if (c != marker[0]) continue;
      const std::string_view rest = text.substr(i, marker.size());
      if (rest == marker) {
        found.marker = true;
        found.marker_bytes = marker.size();
        end = i;
        break;
      }
      if (!complete_ && marker.starts_with(rest)) end = std::min(end, i);
    }
    blank = c == '\n' || (blank && (c == ' ' || c == '\t'));
  }
  if (complete_ && !found.marker) return {.text_bytes = text.size()};
  size_t space = 0;
  while (space < std::min(end, kSpaceBytesMax) && IsSpace(text[end - space - 1])) ++space;
  found.space_bytes = space;
  found.text_bytes = end - space;
  return found;
}

void MarkedParser::Give(Kind kind, size_t bytes) {
  if (bytes == 0) return;
  std::string text = text_.Take(bytes);
  for (char c : text) {
    begun_ = begun_ || (kind == Kind::kContent && !IsSpace(c));
    line_is_blank_ = c == '\n' || (line_is_blank_ && (c == ' ' || c == '\t'));
  }
  Append(*out_, {kind, std::move(text)});
}

// --- calls ---

bool MarkedParser::ReadHead() {
  Cursor cursor(text_.view().substr(lead_), complete_);
  CallPlace place;
  CallHead head;
  syntax_->ReadHead(cursor, /*first=*/true, &place, &head);
  if (cursor.state() == Cursor::State::kMore) return false;
  if (!cursor.ok()) {
    // Not a call; another may begin within what looked like one.
    state_ = State::kText;
    Give(Kind::kContent, lead_ + 1);
    line_is_blank_ = false;
    return true;
  }
  text_.Drop(lead_ + cursor.position());
  Begin(head, place);
  return true;
}

void MarkedParser::Begin(const CallHead& head, const CallPlace& place) {
  place_ = place;
  call_name_ = head.name;
  call_open_ = true;
  begun_ = true;
  Append(*out_, {Kind::kCallBegin, "", calls_,
                 CallId(options_.formats.calls, options_.id_seed, calls_), head.name});
  switch (head.kind) {
    case CallHead::Arguments::kFollow:
      tracker_ = JsonTracker();
      state_ = State::kArguments;
      break;
    case CallHead::Arguments::kXml:
      xml_first_ = true;
      xml_searched_ = 0;
      state_ = State::kXmlArguments;
      break;
    case CallHead::Arguments::kComplete:
      GiveArguments(head.arguments);
      EndCall();
      break;
  }
}

void MarkedParser::GiveArguments(std::string text) {
  Append(*out_, {Kind::kCallArguments, std::move(text), calls_});
}

void MarkedParser::EndCall() {
  Append(*out_, {Kind::kCallEnd, "", calls_});
  call_open_ = false;
  ++calls_;
  state_ = State::kTail;
}

bool MarkedParser::ReadArguments() {
  const std::string_view text = text_.view();
  size_t read = 0;
  JsonTracker::Step step = JsonTracker::Step::kInside;
  while (read < text.size() && step == JsonTracker::Step::kInside) {
    step = tracker_.Next(text[read]);
    if (step != JsonTracker::Step::kBroken) ++read;
  }
  GiveArguments(text_.Take(read));
  if (step == JsonTracker::Step::kInside) return false;
  if (step == JsonTracker::Step::kDone) {
    EndCall();
  } else {
    state_ = State::kBrokenArguments;
  }
  return true;
}

bool MarkedParser::ReadBrokenArguments() {
  const std::string_view text = text_.view();
  const std::string_view end = syntax_->EndOfBroken(place_);
  const size_t found = end.empty() ? std::string_view::npos : text.find(end);
  if (found != std::string_view::npos) {
    GiveArguments(text_.Take(found));
    place_.in_array = place_.in_object = false;
    EndCall();
    return true;
  }
  const size_t held = end.empty() || complete_ ? 0 : PartialAtEnd(text, end);
  GiveArguments(text_.Take(text.size() - held));
  return false;
}

bool MarkedParser::IsString(std::string_view parameter) const {
  for (const ToolSignature& tool : options_.tools) {
    if (tool.name != call_name_) continue;
    return std::find(tool.string_parameters.begin(), tool.string_parameters.end(), parameter) !=
           tool.string_parameters.end();
  }
  return false;
}

void MarkedParser::GiveXmlParameter(std::string_view key, std::string_view value, bool complete) {
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (complete && value.ends_with('\n')) value.remove_suffix(1);
  std::string json = std::exchange(xml_first_, false) ? "{\"" : ", \"";
  AppendJsonEscaped(json, key);
  json += "\": ";
  if (complete && !IsString(key) && IsJson(value)) {
    json += value;
  } else {
    json += '"';
    AppendJsonEscaped(json, value);
    if (complete) json += '"';
  }
  GiveArguments(std::move(json));
}

// Where the end marker of a parameter stands. Within JSON it may be part of a string: there no line
// feed is in front of it.
size_t MarkedParser::FindXmlEnd(std::string_view value, bool is_string) {
  const std::string_view shown = value.substr(value.starts_with('\n') ? 1 : 0);
  const bool json =
      !is_string && !shown.empty() && (shown[0] == '[' || shown[0] == '{' || shown[0] == '"');
  size_t from = xml_searched_;
  for (;;) {
    const size_t found = value.find(kXmlParameterEnd, from);
    if (found == std::string_view::npos) break;
    const size_t begin = value.size() - shown.size();
    if (!json || value[found - 1] == '\n') return found;
    if (++xml_tries_ < kXmlTriesMax && IsJson(value.substr(begin, found - begin))) return found;
    from = found + 1;
    xml_searched_ = from;
  }
  // What is none of JSON either ends at the first.
  if (complete_) return value.find(kXmlParameterEnd);
  xml_searched_ = std::max(from, value.size() - std::min(value.size(), kXmlParameterEnd.size()));
  return std::string_view::npos;
}

bool MarkedParser::ReadXmlArguments() {
  Cursor cursor(text_.view(), complete_);
  cursor.Space();
  if (cursor.Accept(kXmlParameter)) {
    const std::string key(cursor.Until(">", kNameBytesMax));
    if (cursor.state() == Cursor::State::kMore) return false;
    if (cursor.ok()) {
      const std::string_view rest = text_.view().substr(cursor.position());
      const size_t found = FindXmlEnd(rest, IsString(key));
      if (found == std::string_view::npos && !complete_) return false;
      xml_searched_ = 0;
      xml_tries_ = 0;
      const bool ended = found != std::string_view::npos;
      GiveXmlParameter(key, rest.substr(0, found), ended);
      text_.Drop(cursor.position() + (ended ? found + kXmlParameterEnd.size() : rest.size()));
      return ended;
    }
  } else if (cursor.Accept(kXmlFunctionEnd)) {
    text_.Drop(cursor.position());
    GiveArguments(xml_first_ ? "{}" : "}");
    EndCall();
    return true;
  } else if (cursor.AtEnd() || cursor.state() == Cursor::State::kMore) {
    return false;
  }
  GiveArguments(xml_first_ ? "{}" : "}");
  EndCall();
  return true;
}

bool MarkedParser::ReadTail() {
  Cursor cursor(text_.view(), complete_);
  CallPlace place = place_;
  CallHead head;
  size_t end = 0;
  const bool may_follow = syntax_->ReadTail(cursor, &place, &end);
  if (cursor.state() == Cursor::State::kMore) return false;
  if (may_follow) {
    syntax_->ReadHead(cursor, /*first=*/false, &place, &head);
    if (cursor.state() == Cursor::State::kMore) return false;
    if (cursor.ok()) {
      text_.Drop(cursor.position());
      Begin(head, place);
      return true;
    }
  } else {
    end = cursor.position();
  }
  text_.Drop(end);
  trim_ = true;
  line_is_blank_ = true;
  state_ = State::kText;
  return true;
}

}  // namespace staffel::answer
