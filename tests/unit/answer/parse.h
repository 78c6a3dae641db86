// Runs parsers over texts that are cut in many ways.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answer/parser.h"

namespace staffel::answer {

struct TextPiece {
  std::string text;
  bool control = false;
};

// The text in pieces; markers of the formats are control tokens, one each, if `control`.
inline std::vector<TextPiece> Pieces(std::string_view text, const Formats& formats, bool control) {
  std::vector<TextPiece> pieces = {{"", false}};
  for (size_t i = 0; i < text.size();) {
    std::string_view marker;
    for (std::string_view known : Markers(formats)) {
      if (control && text.substr(i).starts_with(known)) marker = known;
    }
    if (marker.empty()) {
      pieces.back().text += text[i++];
    } else {
      pieces.push_back({std::string(marker), true});
      pieces.push_back({"", false});
      i += marker.size();
    }
  }
  return pieces;
}

// `next_size(rest)`: bytes of the next piece, at least one.
template <class NextSize>
std::vector<Delta> ParseDeltas(const ParserOptions& options, const std::vector<TextPiece>& pieces,
                               NextSize next_size) {
  auto parser = MakeParser(options);
  std::vector<Delta> all;
  const auto take = [&](std::vector<Delta> deltas) {
    for (Delta& delta : deltas) Append(all, std::move(delta));
  };
  for (const TextPiece& piece : pieces) {
    for (size_t from = 0; from < piece.text.size();) {
      size_t size = piece.control ? piece.text.size() : next_size(piece.text.size() - from);
      // Whole characters only.
      while (from + size < piece.text.size() && (piece.text[from + size] & 0xC0) == 0x80) ++size;
      std::vector<Delta> deltas;
      parser->Push(std::string_view(piece.text).substr(from, size), piece.control, &deltas);
      take(std::move(deltas));
      from += size;
    }
  }
  std::vector<Delta> deltas;
  parser->Finish(&deltas);
  take(std::move(deltas));
  return all;
}

inline Answer Gather(const std::vector<Delta>& deltas) {
  Answer answer;
  for (const Delta& delta : deltas) answer.Add(delta);
  return answer;
}

}  // namespace staffel::answer
