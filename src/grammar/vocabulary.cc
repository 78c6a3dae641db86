#include "grammar/vocabulary.h"

#include <algorithm>
#include <limits>

#include "base/strings.h"
#include "base/utf8.h"
#include "grammar/network.h"

namespace staffel::grammar {
namespace {

// Characters of a token that is plain; 0: it is not.
int PlainChars(std::string_view bytes) {
  if (!IsValidUtf8(bytes)) return 0;
  int chars = 0;
  for (char c : bytes) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if ((byte & 0xC0) == 0x80) continue;
    if (!BeginsJsonChar(byte)) return 0;
    ++chars;
  }
  return chars <= Vocabulary::kPlainCharsMax ? chars : 0;
}

size_t CommonPrefix(std::string_view a, std::string_view b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

// `entries`: (bytes, token), ascending, no two with the same bytes.
std::vector<Vocabulary::Node> MakeTrie(
    const std::vector<std::pair<std::string_view, TokenId>>& entries) {
  std::vector<Vocabulary::Node> nodes;
  std::vector<uint32_t> path;  // nodes of the last entry
  std::string_view last;
  const auto close_to = [&](size_t depth) {
    while (path.size() > depth) {
      nodes[path.back()].skip = static_cast<uint32_t>(nodes.size());
      path.pop_back();
    }
  };
  for (const auto& [bytes, token] : entries) {
    close_to(CommonPrefix(last, bytes));
    while (path.size() < bytes.size()) {
      const size_t depth = path.size();
      path.push_back(static_cast<uint32_t>(nodes.size()));
      nodes.push_back(
          {0, -1, static_cast<uint16_t>(depth + 1), static_cast<uint8_t>(bytes[depth])});
    }
    nodes[path.back()].token = token;
    last = bytes;
  }
  close_to(0);
  return nodes;
}

}  // namespace

bool Vocabulary::IsEnd(TokenId token) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
}

Result<std::shared_ptr<const Vocabulary>> Vocabulary::Make(VocabularySpec spec) {
  if (spec.token_bytes.empty()) return absl::InvalidArgumentError("the vocabulary is empty");
  auto vocabulary = std::shared_ptr<Vocabulary>(new Vocabulary);
  vocabulary->bytes_ = std::move(spec.token_bytes);
  std::vector<std::string>& bytes = vocabulary->bytes_;
  const auto invalid = [&](TokenId id) {
    return id < 0 || static_cast<size_t>(id) >= bytes.size();
  };
  for (std::string& text : bytes) {
    // Bytes FE and FF are in no UTF-8 text, and mark named tokens here. Depths are 16 bits.
    if (text.find_first_of("\xFE\xFF") != std::string::npos ||
        text.size() > std::numeric_limits<uint16_t>::max()) {
      text.clear();
    }
  }
  for (const auto& [name, id] : spec.named_tokens) {
    if (invalid(id)) return absl::InvalidArgumentError(StrCat("no token has the id ", id));
    bytes[id] = NamedTokenBytes(name);
  }
  for (TokenId id : spec.end_tokens) {
    if (invalid(id)) return absl::InvalidArgumentError(StrCat("no token has the id ", id));
    bytes[id].clear();
  }
  vocabulary->end_tokens_ = std::move(spec.end_tokens);
  std::sort(vocabulary->end_tokens_.begin(), vocabulary->end_tokens_.end());

  std::vector<std::pair<std::string_view, TokenId>> entries, plain, other;
  for (size_t id = 0; id < bytes.size(); ++id) {
    if (!bytes[id].empty()) entries.emplace_back(bytes[id], static_cast<TokenId>(id));
  }
  std::sort(entries.begin(), entries.end());
  std::vector<std::vector<MaskWord>>& sets = vocabulary->plain_up_to_;
  sets.assign(kPlainCharsMax + 1, std::vector<MaskWord>(MaskWords(vocabulary->size())));
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [text, token] = entries[i];
    vocabulary->depth_max_ = std::max(vocabulary->depth_max_, static_cast<int>(text.size()));
    if (i > 0 && entries[i - 1].first == text) {
      const TokenId first =
          vocabulary->duplicates_.empty() || bytes[vocabulary->duplicates_.back().first] != text
              ? entries[i - 1].second
              : vocabulary->duplicates_.back().first;
      vocabulary->duplicates_.emplace_back(first, token);
      continue;
    }
    const int chars = PlainChars(text);
    (chars > 0 ? plain : other).push_back(entries[i]);
    for (int c = chars; chars > 0 && c <= kPlainCharsMax; ++c) {
      sets[c][token / 32] |= MaskWord{1} << (token % 32);
    }
  }
  vocabulary->plain_ = MakeTrie(plain);
  vocabulary->other_ = MakeTrie(other);
  return std::shared_ptr<const Vocabulary>(std::move(vocabulary));
}

}  // namespace staffel::grammar
