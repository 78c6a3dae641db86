// Parses the bytes before the first NUL as a chat template and renders it with the JSON behind it
// as messages and variables. Whatever comes out must be valid UTF-8 with marks in order.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"
#include "nlohmann/json.hpp"
#include "text/chat_template.h"
#include "text/jinja/template.h"
#include "text/utf8.h"

namespace {

using Json = nlohmann::ordered_json;

void CheckPrompt(const staffel::PromptText& prompt) {
  STAFFEL_CHECK_EQ(staffel::ValidUtf8Prefix(prompt.text), prompt.text.size());
  size_t end = 0;
  for (const staffel::ByteRange& range : prompt.content) {
    STAFFEL_CHECK(range.begin >= end && range.begin < range.end);
    end = range.end;
  }
  STAFFEL_CHECK_LE(end, prompt.text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string_view source = bytes.substr(0, bytes.find('\0'));
  Json given;
  if (source.size() < size) given = Json::parse(bytes.substr(source.size() + 1), nullptr, false);
  if (given.is_discarded()) given = nullptr;

  const auto parsed = staffel::jinja::Template::Parse(source);
  if (!parsed.ok()) return 0;
  staffel::jinja::Limits limits;
  limits.steps = 100'000;
  limits.memory_bytes = 4 << 20;
  limits.output_bytes = 1 << 20;
  limits.range_items = 1000;
  const Json text = "some <text> 'here'\n", list = Json::parse(R"([1, "a", {"k": [2.5, null]}])");
  const staffel::jinja::Variable variables[] = {
      {"x", &given}, {"messages", &given}, {"s", &text}, {"l", &list}};
  const auto prompt = (*parsed)->Render(variables, {}, limits);
  if (prompt.ok()) CheckPrompt(*prompt);
  return 0;
}
