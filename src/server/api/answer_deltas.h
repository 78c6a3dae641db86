// What fronts with typed parts (blocks, items) take from a piece of an answer.
#pragma once

#include <vector>

#include "answer/delta.h"
#include "server/api/choice_decoder.h"

namespace staffel::api {

// Text that nobody has told apart is content.
inline std::vector<answer::Delta> DeltasOf(const Piece& piece) {
  if (!piece.deltas.empty() || piece.text.empty()) return piece.deltas;
  return {{.kind = answer::Delta::Kind::kContent, .text = piece.text}};
}

}  // namespace staffel::api
