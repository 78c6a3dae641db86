// Structured output: what an answer must be, and who says which tokens may come next. The front
// checks a specification, plans carry it to the rank that draws, and that rank masks its logits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "staffel/ids.h"
#include "staffel/status.h"

namespace staffel {
namespace grammar {

// Blanks between the tokens of a JSON text. Both are bounded: no model can go on with them for
// ever.
enum class JsonSpace : uint8_t {
  // After { [ and , and before } and ]: nothing, one space, or a line feed and up to 16 spaces or
  // tabs; after a colon: nothing or one space; elsewhere nothing.
  kFlexible,
  kNone,
};

// How a control token stands in the literals below, and only there: bytes that are never part of
// UTF-8, so that no text can spell it.
inline std::string NamedTokenBytes(std::string_view name) {
  return '\xFF' + std::string(name) + '\xFE';
}

// How a value is written.
enum class ValueForm : uint8_t {
  kJson,
  // Of an object, as Qwen3-Coder does: "<parameter=NAME>\nVALUE\n</parameter>\n" for each member,
  // where a member that the schema declares with "type": "string" stands as it is, others as JSON.
  kXml,
};

// Free text until `begin`, then `schema`, then `end`, then free text again: calls of tools within
// an answer. `begin` starts with one of the triggers, and no other text may have a trigger.
struct StructuralTag {
  std::string begin;   // literal
  std::string schema;  // JSON Schema of what stands between
  std::string end;     // literal
  ValueForm form = ValueForm::kJson;

  bool operator==(const StructuralTag&) const = default;
};

struct GrammarSpec {
  enum class Kind : uint8_t {
    kJsonObject,  // any JSON object
    kJsonSchema,  // source: a JSON Schema (grammar/json_schema.h says which of it)
    kRegex,       // source: a regular expression that the whole text matches (grammar/regex.h)
    kGrammar,     // source: GBNF, as llama.cpp and XGrammar have it (grammar/gbnf.h)
    kChoice,      // one of `choices`
    kTags,        // triggers and tags
    kText,        // any text, of any tokens
  };
  Kind kind = Kind::kJsonObject;
  // As the kind says. kTags: a JSON Schema of an answer without tags, where it is no free text.
  std::string source;
  std::vector<std::string> choices;
  std::vector<std::string> triggers;
  std::vector<StructuralTag> tags;
  bool tag_required = false;  // kTags: no free text; one tag or more
  bool single_tag = false;    // kTags: nothing after the first tag
  // kTags: tags stand at the beginning of the text or nowhere; other text does not begin with one
  // of the triggers, which are single ASCII characters, nor with one behind white space.
  bool leading_tags = false;
  // kTags: literals around a run of tags, and between them. Where there is a list_begin, it is what
  // starts with a trigger, and not each tag's begin.
  std::string list_begin, list_separator, list_end;
  // Literal in front of the text; kTags: in front of free text, which then has no tags in it.
  std::string text_begin;
  // Literals around reasoning, which is free text: it may come first, and where the prompt has
  // opened it (reasoning_open), its end must. Without reasoning_end there is none.
  std::string reasoning_begin, reasoning_end;
  bool reasoning_open = false;
  // Tokens of reasoning behind which its end is all that may come; -1: any number.
  int reasoning_tokens_max = -1;
  JsonSpace space = JsonSpace::kFlexible;

  bool operator==(const GrammarSpec&) const = default;
};

using MaskWord = uint32_t;  // token t is bit t % 32 of word t / 32

struct TokenMask {
  std::vector<MaskWord> words;  // a bit for each token: it may come next
  int count = 0;                // tokens allowed
  TokenId only = -1;            // the token, if count is 1
};

// One sequence's place in a grammar. One thread at a time.
class SequenceGrammar {
 public:
  virtual ~SequenceGrammar() = default;
  // The tokens that may come next; end tokens are among them exactly where the text is complete.
  virtual std::shared_ptr<const TokenMask> Mask() = 0;
  // Tokens that must come next, whatever the model says, as the tokenizer spells them; empty where
  // there is a choice, or may be one once more bytes are known. A function of the tokens appended.
  virtual absl::Span<const TokenId> Forced() const = 0;
  // Moves on. InvalidArgument: the mask does not have the token.
  virtual Status Append(TokenId token) = 0;
};

// The grammars of one vocabulary. Used from any thread.
class Grammars {
 public:
  virtual ~Grammars() = default;
  // Whether a specification can be honoured. InvalidArgument, ResourceExhausted: what is wrong.
  virtual Status Check(const GrammarSpec& spec) = 0;
  // A sequence at its beginning. Errors as above.
  virtual Result<std::unique_ptr<SequenceGrammar>> Begin(const GrammarSpec& spec) = 0;
};

}  // namespace grammar
}  // namespace staffel
