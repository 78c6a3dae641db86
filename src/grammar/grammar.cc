#include "grammar/grammar.h"

#include <utility>

#include "base/strings.h"
#include "base/utf8.h"
#include "grammar/expr.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "grammar/tags.h"

namespace staffel::grammar {
namespace {

Result<RuleId> ParseChoices(ExprPool& pool, const std::vector<std::string>& choices) {
  if (choices.empty()) return absl::InvalidArgumentError("a choice needs at least one text");
  std::vector<ExprId> words;
  for (const std::string& choice : choices) {
    if (!IsValidUtf8(choice)) return absl::InvalidArgumentError("a choice is not valid UTF-8");
    words.push_back(pool.Literal(choice));
  }
  const RuleId rule = pool.NewRule("the choice");
  pool.Define(rule, pool.Choice(words));
  return rule;
}

Result<RuleId> Parse(ExprPool& pool, const GrammarSpec& spec) {
  if (spec.source.size() > pool.limits().source_bytes) {
    return absl::InvalidArgumentError(
        StrCat("the grammar has more than ", pool.limits().source_bytes, " bytes"));
  }
  switch (spec.kind) {
    case GrammarSpec::Kind::kJsonObject:
      return AnyJsonObject(pool, spec.space);
    case GrammarSpec::Kind::kJsonSchema:
      return ParseJsonSchema(pool, spec.source, spec.space);
    case GrammarSpec::Kind::kRegex: {
      STAFFEL_ASSIGN_OR_RETURN(const ExprId expr,
                               ParseRegex(pool, spec.source, RegexMatch::kFull, Encoding::kRaw));
      const RuleId rule = pool.NewRule("the regular expression");
      pool.Define(rule, expr);
      return rule;
    }
    case GrammarSpec::Kind::kGrammar:
      return ParseGbnf(pool, spec.source);
    case GrammarSpec::Kind::kChoice:
      return ParseChoices(pool, spec.choices);
    case GrammarSpec::Kind::kText:  // nothing to compile: GrammarCache
      break;
    case GrammarSpec::Kind::kTags:
      return ParseTags(pool, spec);
  }
  return absl::InvalidArgumentError("the kind of grammar is unknown");
}

// What the specification says of the text in front of that: reasoning, and a literal.
RuleId WithBeginning(ExprPool& pool, const GrammarSpec& spec, RuleId content) {
  const bool literal = !spec.text_begin.empty() && spec.kind != GrammarSpec::Kind::kTags;
  if (spec.reasoning_end.empty() && !literal) return content;
  std::vector<ExprId> parts;
  if (!spec.reasoning_end.empty()) {
    // Blank lines behind it are as the models were trained.
    const ExprId rest =
        pool.Sequence({TextUntil(pool, spec.reasoning_end),
                       pool.Choice({pool.Empty(), pool.Literal("\n"), pool.Literal("\n\n")})});
    parts.push_back(spec.reasoning_open
                        ? rest
                        : pool.Optional(pool.Sequence({pool.Literal(spec.reasoning_begin), rest})));
  }
  if (literal) parts.push_back(pool.Literal(spec.text_begin));
  parts.push_back(pool.Rule(content));
  const RuleId root = pool.NewRule("the answer");
  pool.Define(root, pool.Sequence(parts));
  return root;
}

Status CheckBeginning(const GrammarSpec& spec) {
  const bool begins = spec.reasoning_open || !spec.reasoning_begin.empty();
  if (spec.reasoning_end.empty() || begins) return absl::OkStatus();
  return absl::InvalidArgumentError("reasoning that the prompt does not open needs a beginning");
}

}  // namespace

Result<std::shared_ptr<const Grammar>> Compile(const GrammarSpec& spec, const Limits& limits) {
  ExprPool pool(limits);
  STAFFEL_RETURN_IF_ERROR(CheckBeginning(spec));
  STAFFEL_ASSIGN_OR_RETURN(const RuleId content, Parse(pool, spec));
  const RuleId root = WithBeginning(pool, spec, content);
  STAFFEL_ASSIGN_OR_RETURN(Network network, BuildNetwork(pool, root));
  return std::make_shared<const Grammar>(std::move(network), limits);
}

}  // namespace staffel::grammar
