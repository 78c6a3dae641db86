#include "answer/call_syntax.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "answer/markers.h"
#include "answer/python_call.h"

namespace staffel::answer {
namespace {

constexpr size_t kKeyBytesMax = 64;
constexpr std::string_view kFence = "```";
constexpr std::string_view kXmlFunction = "<function=";

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

bool IsCallName(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return static_cast<unsigned char>(c) > ' ' && c != '\x7F'; });
}

// Calls as JSON objects with a name and arguments, in the dress that the families give them.
struct JsonDress {
  std::vector<std::string_view> begins;
  bool bare = false;           // also without any of them
  bool array = false;          // several in [ ]
  bool names = false;          // Mistral's name[ARGS]{…}
  bool python = false;         // Gemma's f(a=1)
  std::string_view separator;  // may stand between objects
};

class JsonSyntax final : public CallSyntax {
 public:
  JsonSyntax(JsonDress dress, const std::vector<ToolSignature>& tools)
      : dress_(std::move(dress)), tools_(tools) {}

  const std::vector<std::string_view>& begins() const override { return dress_.begins; }
  bool bare() const override { return dress_.bare; }

  std::string_view EndOfBroken(const CallPlace& place) const override {
    if (place.tagged) return kHermesEnd;
    if (place.fenced) return kFence;
    return {};
  }

  void ReadHead(Cursor& cursor, bool first, CallPlace* place, CallHead* head) const override {
    bool xml = false;
    bool marked = !first;  // a further call stands where only calls stand
    if (first) {
      for (std::string_view begin : dress_.begins) {
        if (!cursor.Accept(begin)) continue;
        place->tagged = begin == kHermesBegin;
        place->fenced = begin.starts_with(kFence);
        xml = begin == kXmlFunction;
        marked = !place->fenced;
        break;
      }
      if (!xml) cursor.Space();
      if (place->tagged && cursor.Accept(kXmlFunction)) xml = true;
    }
    if (xml) return ReadXmlHead(cursor, head);
    if (first && dress_.array && cursor.Accept("[")) {
      place->in_array = true;
      cursor.Space();
    }
    const char next = cursor.Peek();
    if (next == '{') {
      ReadObject(cursor, marked, place, head);
    } else if (dress_.names && !place->in_array) {
      ReadNamed(cursor, head);
    } else if (dress_.python) {
      ReadPythonCall(cursor, &head->name, &head->arguments);
      if (cursor.ok() && !IsTool(head->name)) cursor.Fail();
    } else {
      cursor.Fail();
    }
  }

  bool ReadTail(Cursor& cursor, CallPlace* place, size_t* end) const override {
    if (std::exchange(place->in_object, false)) ReadMembers(cursor);
    for (;;) {
      *end = cursor.position();
      cursor.Space();
      if (!cursor.ok()) return false;
      if (place->in_array) {
        if (cursor.Accept("]")) {
          place->in_array = false;
          continue;
        }
        if (cursor.Accept(",")) {
          cursor.Space();
          return cursor.ok();
        }
      } else {
        if (place->tagged && cursor.Accept(kHermesEnd)) return false;
        if (place->fenced && cursor.Accept(kFence)) return false;
        if (!dress_.separator.empty() && cursor.Accept(dress_.separator)) cursor.Space();
        if (cursor.AtEnd()) break;
        const char next = cursor.Peek();
        if (next == '{' || (dress_.python && place->fenced && next != 0)) return cursor.ok();
      }
      break;
    }
    if (cursor.ok()) cursor.Seek(*end);
    return false;
  }

 private:
  bool IsTool(std::string_view name) const {
    return tools_.empty() || std::any_of(tools_.begin(), tools_.end(),
                                         [&](const auto& tool) { return tool.name == name; });
  }

  static void ReadXmlHead(Cursor& cursor, CallHead* head) {
    head->name = Trim(cursor.Until(">", kNameBytesMax));
    head->kind = CallHead::Arguments::kXml;
    if (cursor.ok() && !IsCallName(head->name)) cursor.Fail();
  }

  static void ReadNamed(Cursor& cursor, CallHead* head) {
    head->name = cursor.Word();
    if (cursor.Accept(kMistralCallId)) cursor.Word();
    cursor.Accept(kMistralArgsMarker);
    cursor.Space();
    if (cursor.Peek() != '{') cursor.Fail();
    head->kind = CallHead::Arguments::kFollow;
  }

  // `marked`: a marker says that this is a call; else it must look like one in every respect.
  void ReadObject(Cursor& cursor, bool marked, CallPlace* place, CallHead* head) const {
    std::optional<std::string> arguments;
    cursor.Expect("{");
    for (;;) {
      cursor.Space();
      if (cursor.Accept("}")) break;
      const std::string key = cursor.JsonString(kKeyBytesMax);
      cursor.Space();
      cursor.Expect(":");
      cursor.Space();
      if (!cursor.ok()) return;
      if ((key == "name" || key == "function") && cursor.Peek() == '"') {
        const std::string name = cursor.JsonString(kNameBytesMax);
        if (!cursor.ok()) return;
        if (!head->name.empty() || !IsCallName(name) || (!marked && !IsTool(name))) {
          return cursor.Fail();
        }
        head->name = name;
      } else if (key == "arguments" || key == "parameters") {
        if (arguments) return cursor.Fail();
        if (cursor.Peek() == '{' && !head->name.empty()) {
          head->kind = CallHead::Arguments::kFollow;
          place->in_object = true;
          return;
        }
        arguments = ReadArguments(cursor);
      } else if (marked || key == "type" || key == "id") {
        cursor.JsonValue();
      } else {
        return cursor.Fail();
      }
      cursor.Space();
      if (cursor.Accept(",")) continue;
      cursor.Expect("}");
      break;
    }
    if (head->name.empty() || (!arguments && !marked)) return cursor.Fail();
    head->arguments = arguments.value_or("{}");
  }

  // Arguments that are not given out while they come.
  static std::string ReadArguments(Cursor& cursor) {
    const char first = cursor.Peek();
    if (first == '{') return std::string(cursor.JsonValue());
    if (first == '"') {
      const std::string unpacked = cursor.JsonString(kHeadBytesMax);
      const std::string_view text = Trim(unpacked);
      if (cursor.ok() && text.empty()) return "{}";
      if (!text.starts_with('{') || !IsJson(text)) cursor.Fail();
      return std::string(text);
    }
    cursor.Expect("null");
    return "{}";
  }

  // Members of a call behind its arguments, and its end.
  static void ReadMembers(Cursor& cursor) {
    size_t good = cursor.position();
    for (;;) {
      cursor.Space();
      if (cursor.Accept("}")) return;
      if (!cursor.Accept(",")) break;
      cursor.Space();
      cursor.JsonString(kKeyBytesMax);
      cursor.Space();
      cursor.Expect(":");
      cursor.Space();
      cursor.JsonValue();
      if (!cursor.ok()) break;
      good = cursor.position();
    }
    if (cursor.state() != Cursor::State::kMore) cursor.Recover(good);
  }

  const JsonDress dress_;
  const std::vector<ToolSignature>& tools_;
};

// <｜tool▁calls▁begin｜>, then for each call <｜tool▁call▁begin｜>…<｜tool▁call▁end｜>, in the
// dress of V3 (type, name, fenced JSON) or of V3.1 (name, JSON).
class DeepSeekSyntax final : public CallSyntax {
 public:
  const std::vector<std::string_view>& begins() const override { return begins_; }
  std::string_view EndOfBroken(const CallPlace&) const override { return kDeepSeekCallEnd; }

  void ReadHead(Cursor& cursor, bool first, CallPlace* place, CallHead* head) const override {
    if (first && cursor.Accept(kDeepSeekCallsBegin)) cursor.Space();
    cursor.Expect(kDeepSeekCallBegin);
    const std::string_view before = Trim(cursor.Until(kDeepSeekSep, kNameBytesMax));
    cursor.Space();
    if (cursor.Peek() == '{') {
      head->name = before;
    } else {
      head->name = Trim(cursor.Until("\n", kNameBytesMax));
      cursor.Space();
      if (cursor.Accept(kFence)) {
        place->fenced = true;
        cursor.Accept("json");
        cursor.Space();
      }
      if (cursor.Peek() != '{') cursor.Fail();
    }
    if (cursor.ok() && !IsCallName(head->name)) cursor.Fail();
    head->kind = CallHead::Arguments::kFollow;
  }

  bool ReadTail(Cursor& cursor, CallPlace* place, size_t* end) const override {
    *end = cursor.position();
    cursor.Space();
    if (place->fenced && cursor.Accept(kFence)) {
      place->fenced = false;
      *end = cursor.position();
      cursor.Space();
    }
    if (!cursor.Accept(kDeepSeekCallEnd)) {
      if (cursor.ok()) cursor.Seek(*end);
      return false;
    }
    *end = cursor.position();
    cursor.Space();
    if (cursor.Accept(kDeepSeekCallsEnd)) return false;
    const size_t next = cursor.position();
    if (cursor.Accept(kDeepSeekCallBegin)) {
      cursor.Seek(next);
      return true;
    }
    if (cursor.ok()) cursor.Seek(*end);
    return false;
  }

 private:
  const std::vector<std::string_view> begins_ = {kDeepSeekCallsBegin, kDeepSeekCallBegin};
};

JsonDress DressOf(CallFormat format) {
  JsonDress dress;
  switch (format) {
    case CallFormat::kHermes:
      dress.begins = {kHermesBegin};
      dress.array = true;
      break;
    case CallFormat::kQwenXml:
      dress.begins = {kHermesBegin, kXmlFunction};
      break;
    case CallFormat::kLlama:
      dress = {.begins = {kPythonTag}, .bare = true, .separator = ";"};
      break;
    case CallFormat::kMistral:
    case CallFormat::kMistralArgs:
      dress = {.begins = {kMistralCalls}, .array = true, .names = true};
      break;
    case CallFormat::kGranite:
      dress = {.begins = {kGraniteCalls, kHermesBegin}, .array = true};
      break;
    case CallFormat::kGemma:
      dress = {.begins = {"```tool_code", "```tool_call", "```json"},
               .bare = true,
               .array = true,
               .python = true};
      break;
    default:
      dress = {.begins = {kHermesBegin, "```json"}, .bare = true, .array = true};
      break;
  }
  return dress;
}

}  // namespace

std::unique_ptr<CallSyntax> MakeBareSyntax(const std::vector<ToolSignature>& tools) {
  JsonDress dress = {.begins = {"```json", kFence}, .bare = true, .array = true};
  return std::make_unique<JsonSyntax>(std::move(dress), tools);
}

std::unique_ptr<CallSyntax> MakeCallSyntax(CallFormat format,
                                           const std::vector<ToolSignature>& tools) {
  if (format == CallFormat::kDeepSeek || format == CallFormat::kDeepSeek31) {
    return std::make_unique<DeepSeekSyntax>();
  }
  return std::make_unique<JsonSyntax>(DressOf(format), tools);
}

}  // namespace staffel::answer
