#include "grammar/tags.h"

#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "base/utf8.h"
#include "grammar/json_schema.h"
#include "grammar/trigger_text.h"

namespace staffel::grammar {
namespace {

// A control token is no text: free text ends in front of it by itself.
bool IsNamedToken(std::string_view literal) { return literal.starts_with('\xFF'); }

// Free text, up to and with the first occurrence of one trigger among several; `wanted` < 0: text
// that has none.
class FreeText {
 public:
  FreeText(ExprPool& pool, const std::vector<std::string>& triggers) : pool_(pool) {
    for (const std::string& trigger : triggers) {
      index_.push_back(IsNamedToken(trigger) ? -1 : static_cast<int>(texts_.size()));
      if (index_.back() >= 0) texts_.push_back(trigger);
    }
  }
  ExprId Until(int wanted, const std::string& trigger) const {
    const int text = index_[wanted];
    return text >= 0 ? Text(text) : pool_.Sequence({Text(-1), pool_.Literal(trigger)});
  }
  ExprId WithoutAny() const { return Text(-1); }

 private:
  ExprId Text(int wanted) const {
    return pool_.Dfa(std::make_shared<const CharDfa>(UntilTrigger(texts_, wanted)), Encoding::kRaw);
  }

  ExprPool& pool_;
  std::vector<std::string> texts_;
  std::vector<int> index_;  // in texts_, by trigger; -1: a control token
};

Status CheckTrigger(std::string_view trigger) {
  if (!trigger.empty() && (IsNamedToken(trigger) || IsValidUtf8(trigger))) return absl::OkStatus();
  return absl::InvalidArgumentError("a trigger must be text that is not empty");
}

// `text` behind one of the triggers, each with what may follow it.
class Triggered {
 public:
  explicit Triggered(const GrammarSpec& spec)
      : triggers_(spec.triggers), rests_(triggers_.size()) {}

  // `rest` makes an expression of the literal without its trigger.
  template <class Rest>
  Status Add(std::string_view literal, Rest rest) {
    for (size_t t = 0; t < triggers_.size(); ++t) {
      if (!literal.starts_with(triggers_[t])) continue;
      rests_[t].push_back(rest(literal.substr(triggers_[t].size())));
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        StrCat("the tag \"", literal, "\" begins with none of the triggers"));
  }
  // Free text up to a trigger, and what belongs to it.
  ExprId Call(ExprPool& pool, const FreeText& text) const {
    std::vector<ExprId> calls;
    for (size_t t = 0; t < triggers_.size(); ++t) {
      if (rests_[t].empty()) continue;
      calls.push_back(
          pool.Sequence({text.Until(static_cast<int>(t), triggers_[t]), pool.Choice(rests_[t])}));
    }
    return pool.Choice(calls);
  }

 private:
  const std::vector<std::string>& triggers_;
  std::vector<std::vector<ExprId>> rests_;
};

Result<RuleId> ParseContent(ExprPool& pool, const StructuralTag& tag, JsonSpace space) {
  switch (tag.form) {
    case ValueForm::kJson:
      return ParseJsonSchema(pool, tag.schema, space);
    case ValueForm::kXml:
      return ParseXmlSchema(pool, tag.schema, space);
  }
  return absl::InvalidArgumentError("the form of a tag is unknown");
}

// Text that does not begin, behind white space, with one of the triggers.
Result<ExprId> TextWithoutLead(ExprPool& pool, const std::vector<std::string>& triggers) {
  const CharSet space = CharSet::Of(" \t\r\n");
  CharSet first = CharSet::All().Minus(space);
  for (const std::string& trigger : triggers) {
    if (trigger.size() != 1 || static_cast<uint8_t>(trigger[0]) >= 0x80) {
      return absl::InvalidArgumentError(
          "triggers of tags that lead must be single ASCII characters");
    }
    first = first.Minus(CharSet::Of(trigger));
  }
  const auto chars = [&](const CharSet& set) { return pool.Chars(set, Encoding::kRaw); };
  const ExprId rest = pool.Repeat(chars(CharSet::All()), 0, kUnbounded);
  return pool.Sequence({pool.Repeat(chars(space), 0, kUnbounded),
                        pool.Optional(pool.Sequence({chars(first), rest}))});
}

// A tag: `begin`, then `rest`.
struct Tag {
  std::string_view begin;
  ExprId rest;
};

Result<std::vector<Tag>> ParseEach(ExprPool& pool, const GrammarSpec& spec) {
  std::vector<Tag> tags;
  for (const StructuralTag& tag : spec.tags) {
    STAFFEL_ASSIGN_OR_RETURN(const RuleId content, ParseContent(pool, tag, spec.space));
    tags.push_back({tag.begin, pool.Sequence({pool.Rule(content), pool.Literal(tag.end)})});
  }
  return tags;
}

// Tags in a row, and what ends them.
ExprId Run(ExprPool& pool, const GrammarSpec& spec, const std::vector<Tag>& tags) {
  std::vector<ExprId> whole;
  for (const Tag& tag : tags) whole.push_back(pool.Sequence({pool.Literal(tag.begin), tag.rest}));
  const ExprId any = pool.Choice(whole);
  const ExprId end = pool.Literal(spec.list_end);
  if (spec.single_tag) return pool.Sequence({any, end});
  const ExprId more = pool.Sequence({pool.Literal(spec.list_separator), any});
  return pool.Sequence({any, pool.Repeat(more, 0, kUnbounded), end});
}

// Free text with tags behind triggers.
Result<ExprId> TextAndTags(ExprPool& pool, const GrammarSpec& spec, const std::vector<Tag>& tags,
                           ExprId run) {
  Triggered triggered(spec);
  if (!spec.list_begin.empty()) {
    STAFFEL_RETURN_IF_ERROR(triggered.Add(spec.list_begin, [&](std::string_view begin) {
      return pool.Sequence({pool.Literal(begin), run});
    }));
  } else {
    for (const Tag& tag : tags) {
      STAFFEL_RETURN_IF_ERROR(triggered.Add(tag.begin, [&](std::string_view begin) {
        return pool.Sequence({pool.Literal(begin), tag.rest});
      }));
    }
  }
  const FreeText free_text(pool, spec.triggers);
  const ExprId call = triggered.Call(pool, free_text);
  const ExprId text = free_text.WithoutAny();
  if (spec.single_tag) return pool.Choice({text, call});
  return pool.Sequence({pool.Repeat(call, 0, kUnbounded), text});
}

// Text or tags, where the beginning tells which of them.
Result<ExprId> TextOrTags(ExprPool& pool, const GrammarSpec& spec, ExprId list) {
  ExprId text = pool.Never();
  if (!spec.source.empty()) {
    STAFFEL_ASSIGN_OR_RETURN(const RuleId json, ParseJsonSchema(pool, spec.source, spec.space));
    text = pool.Rule(json);
  } else if (spec.leading_tags) {
    STAFFEL_ASSIGN_OR_RETURN(text, TextWithoutLead(pool, spec.triggers));
  } else {
    text = FreeText(pool, spec.triggers).WithoutAny();
  }
  return pool.Choice({pool.Sequence({pool.Literal(spec.text_begin), text}), list});
}

}  // namespace

ExprId TextUntil(ExprPool& pool, std::string_view marker) {
  const std::string trigger(marker);
  return FreeText(pool, {trigger}).Until(0, trigger);
}

Result<RuleId> ParseTags(ExprPool& pool, const GrammarSpec& spec) {
  if (spec.tags.empty()) return absl::InvalidArgumentError("a grammar of tags needs a tag");
  for (const std::string& trigger : spec.triggers) STAFFEL_RETURN_IF_ERROR(CheckTrigger(trigger));
  STAFFEL_ASSIGN_OR_RETURN(const std::vector<Tag> tags, ParseEach(pool, spec));
  const ExprId run = Run(pool, spec, tags);
  const ExprId list = pool.Sequence({pool.Literal(spec.list_begin), run});
  ExprId body = list;
  if (!spec.tag_required) {
    const bool either = !spec.source.empty() || spec.leading_tags || !spec.text_begin.empty();
    STAFFEL_ASSIGN_OR_RETURN(
        body, either ? TextOrTags(pool, spec, list) : TextAndTags(pool, spec, tags, run));
  }
  const RuleId root = pool.NewRule("the tags");
  pool.Define(root, body);
  return root;
}

}  // namespace staffel::grammar
