#include "server/api/text_tokens.h"

#include <cstdint>
#include <vector>

namespace staffel::api {
namespace {

bool ContinuesCharacter(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

Json TokensInText(const Tokenizer& tokenizer, std::string_view text,
                  absl::Span<const TokenId> tokens) {
  // Bytes to characters: of byte i, the number of characters that begin before it.
  std::vector<int> before(text.size() + 1, 0);
  for (size_t i = 0; i < text.size(); i++)
    before[i + 1] = before[i] + (ContinuesCharacter(text[i]) ? 0 : 1);
  Json out = Json::array();
  size_t at = 0;
  for (TokenId token : tokens) {
    std::string_view bytes = tokenizer.TokenBytes(token, /*special=*/true);
    // Tokenizers of the SentencePiece family put a space in front of the text, and bos.
    if (!text.substr(at).starts_with(bytes) && bytes.starts_with(' ')) bytes.remove_prefix(1);
    const bool there = text.substr(at).starts_with(bytes);
    size_t begin = at, end = there ? at + bytes.size() : at;
    at = end;
    while (begin > 0 && begin < end && ContinuesCharacter(text[begin])) begin--;
    while (end > begin && end < text.size() && ContinuesCharacter(text[end])) end++;
    out.push_back({{"id", token},
                   {"text", text.substr(begin, end - begin)},
                   {"start", before[begin]},
                   {"stop", before[end]}});
  }
  return out;
}

}  // namespace staffel::api
