#include "server/kserve/part.h"

namespace staffel::api::kserve {

std::vector<Part> PartsOf(const std::vector<ChoiceResult>& choices) {
  std::vector<Part> parts;
  for (const ChoiceResult& choice : choices) {
    float logprob = 0;
    Part part = PartOf(choice.all, logprob);
    part.text.insert(0, choice.echo_text);
    part.tokens = static_cast<uint32_t>(choice.completion_tokens);
    parts.push_back(std::move(part));
  }
  return parts;
}

Part PartOf(const Piece& piece, float& logprob) {
  float sum = 0;
  for (const GeneratedToken& token : piece.tokens) sum += token.logprob;
  logprob += sum;
  return {.text = piece.text,
          .finish = piece.finish ? std::string(FinishName(*piece.finish)) : "",
          .logprob = logprob,
          .tokens = static_cast<uint32_t>(piece.tokens.size())};
}

}  // namespace staffel::api::kserve
