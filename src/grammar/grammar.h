// Structured output: a grammar is compiled once, and then says for every text which tokens may come
// next. The way: a front end turns its source into rules over characters (expr.h), these become a
// network of automata over UTF-8 bytes that call each other (network.h), which is made
// deterministic while it is used (automaton.h) and walked with the trie of a vocabulary
// (vocabulary.h); a Matcher (matcher.h) is one sequence's place in it. Pure: no I/O, threads or
// clocks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "grammar/limits.h"
#include "grammar/network.h"
#include "staffel/status.h"

namespace staffel::grammar {

// Blanks between the tokens of a JSON text. Both are bounded: no model can go on with them for
// ever.
enum class JsonSpace : uint8_t {
  // After { [ and , and before } and ]: nothing, one space, or a line feed and up to 16 spaces or
  // tabs; after a colon: nothing or one space; elsewhere nothing.
  kFlexible,
  kNone,
};

// Free text until `begin`, then `content`, then `end`, then free text again: calls of tools within
// an answer. `begin` starts with one of the triggers, and no other text may have a trigger.
struct StructuralTag {
  std::string begin;   // literal
  std::string schema;  // JSON Schema of what stands between
  std::string end;     // literal

  bool operator==(const StructuralTag&) const = default;
};

struct GrammarSpec {
  enum class Kind : uint8_t {
    kJsonObject,  // any JSON object
    kJsonSchema,  // source: a JSON Schema (draft 2020-12; json_schema.h says which of it)
    kRegex,       // source: a regular expression that the whole text matches (regex.h)
    kGrammar,     // source: GBNF, as llama.cpp and XGrammar have it (gbnf.h)
    kChoice,      // one of `choices`
    kTags,        // triggers and tags
  };
  Kind kind = Kind::kJsonObject;
  std::string source;
  std::vector<std::string> choices;
  std::vector<std::string> triggers;
  std::vector<StructuralTag> tags;
  bool tag_required = false;  // kTags: no free text; one tag or more
  bool single_tag = false;    // kTags: nothing after the first tag
  JsonSpace space = JsonSpace::kFlexible;

  bool operator==(const GrammarSpec&) const;
};

// Immutable; used from any thread.
class Grammar {
 public:
  Grammar(Network network, const Limits& limits) : network_(std::move(network)), limits_(limits) {}
  const Network& network() const { return network_; }
  const Limits& limits() const { return limits_; }

 private:
  Network network_;
  Limits limits_;
};

// InvalidArgument: the source is malformed, uses what is not supported (the message names it and
// where it stands), or is satisfied by no text. ResourceExhausted: it is larger than the limits.
Result<std::shared_ptr<const Grammar>> Compile(const GrammarSpec& spec, const Limits& limits = {});

}  // namespace staffel::grammar
