#include "answer/delta.h"

#include <utility>

#include "base/check.h"

namespace staffel::answer {

void Append(std::vector<Delta>& deltas, Delta delta) {
  const bool is_text = delta.kind != Delta::Kind::kCallBegin && delta.kind != Delta::Kind::kCallEnd;
  if (is_text && delta.text.empty()) return;
  if (is_text && !deltas.empty() && deltas.back().kind == delta.kind &&
      deltas.back().call == delta.call) {
    deltas.back().text += delta.text;
    return;
  }
  deltas.push_back(std::move(delta));
}

void Answer::Add(const Delta& delta) {
  switch (delta.kind) {
    case Delta::Kind::kContent:
      content += delta.text;
      break;
    case Delta::Kind::kReasoning:
      reasoning += delta.text;
      break;
    case Delta::Kind::kCallBegin:
      STAFFEL_CHECK(delta.call == static_cast<int>(calls.size())) << "calls come in order";
      calls.push_back({delta.id, delta.name, ""});
      break;
    case Delta::Kind::kCallArguments:
      STAFFEL_CHECK(delta.call + 1 == static_cast<int>(calls.size())) << "calls do not overlap";
      calls.back().arguments += delta.text;
      break;
    case Delta::Kind::kCallEnd:
      break;
  }
}

}  // namespace staffel::answer
