// What fronts with typed parts (blocks, items) take from a piece of an answer.
#pragma once

#include <vector>

#include "answer/delta.h"
#include "server/api/choice_decoder.h"

namespace staffel::api {

inline std::vector<answer::Delta> DeltasOf(const Piece& piece) {
  if (piece.text.empty()) return {};
  return {{.kind = answer::Delta::Kind::kContent, .text = piece.text}};
}

}  // namespace staffel::api
