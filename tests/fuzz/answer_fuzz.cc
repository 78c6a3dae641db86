// What a model writes is outside text: the parsers of calls and reasoning end every answer, and
// give out the same however it was cut. The first three bytes choose formats, options and cuts.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "answer/parser.h"
#include "base/check.h"
#include "tests/unit/answer/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace staffel::answer;
  if (size < 3) return 0;
  ParserOptions options;
  options.formats.calls = static_cast<CallFormat>(data[0] % 12);
  options.formats.reasoning = static_cast<ReasoningFormat>(data[1] % 5);
  options.in_reasoning = (data[1] & 0x80) != 0;
  options.show_control = (data[1] & 0x40) != 0;
  if ((data[1] & 0x20) == 0) options.tools = {{"f", {"text"}}, {"g", {}}};
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const auto pieces = Pieces(text, options.formats, (data[2] & 0x80) != 0);
  const auto whole = ParseDeltas(options, pieces, [](size_t rest) { return rest; });
  const size_t step = 1 + data[2] % 13;
  STAFFEL_CHECK(ParseDeltas(options, pieces, [&](size_t) { return step; }) == whole);
  Gather(whole);  // checks the order of calls
  return 0;
}
