// Schemas, regular expressions and GBNF come from clients: whatever they say, compiling ends in a
// grammar or an error, and the masks of a grammar have what the matcher takes. The first byte
// chooses the kind of source.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "tests/unit/grammar/support.h"

namespace staffel::grammar {
namespace {

void Follow(const std::shared_ptr<const Grammar>& grammar) {
  Matcher matcher(std::make_shared<Automaton>(grammar, ByteVocabulary()));
  for (int step = 0; step < 40 && !matcher.finished(); ++step) {
    const auto mask = matcher.Mask();
    if (mask->count == 0) return;  // too ambiguous to go on
    TokenId token = (step * 37) % 257;
    while ((mask->words[token / 32] >> (token % 32) & 1) == 0) token = (token + 1) % 257;
    STAFFEL_CHECK(matcher.Accept(token).ok());
  }
}

}  // namespace
}  // namespace staffel::grammar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using staffel::grammar::GrammarSpec;
  if (size == 0) return 0;
  GrammarSpec spec;
  switch (data[0] % 3) {
    case 0:
      spec.kind = GrammarSpec::Kind::kJsonSchema;
      break;
    case 1:
      spec.kind = GrammarSpec::Kind::kRegex;
      break;
    default:
      spec.kind = GrammarSpec::Kind::kGrammar;
  }
  spec.source.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  staffel::grammar::Limits limits;
  limits.automaton_states = 200'000;
  limits.dfa_states = 4'000;
  const auto grammar = staffel::grammar::Compile(spec, limits);
  if (grammar.ok()) staffel::grammar::Follow(*grammar);
  return 0;
}
