#include "answer/parser.h"

#include <utility>

#include "answer/harmony_parser.h"
#include "answer/marked_parser.h"

namespace staffel::answer {

std::unique_ptr<Parser> MakeParser(ParserOptions options) {
  const Formats& formats = options.formats;
  if (formats.calls == CallFormat::kHarmony || formats.reasoning == ReasoningFormat::kHarmony) {
    return std::make_unique<HarmonyParser>(std::move(options));
  }
  return std::make_unique<MarkedParser>(std::move(options));
}

std::string CallId(CallFormat format, uint64_t seed, int index) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  const bool short_id = format == CallFormat::kMistral || format == CallFormat::kMistralArgs;
  std::string id = short_id ? "" : "call_";
  uint64_t state = seed ^ (0xD1342543DE82EF95u * (static_cast<uint64_t>(index) + 1));
  for (int i = 0; i < (short_id ? 9 : 24); ++i) {
    // Steele and others' SplitMix64.
    state += 0x9E3779B97F4A7C15u;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    id += kLetters[(z ^ (z >> 31)) % kLetters.size()];
  }
  return id;
}

}  // namespace staffel::answer
