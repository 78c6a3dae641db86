// The parts that JSON texts are made of, as expressions: blanks, strings, numbers, any value. One
// for each pool; equal parts are one rule.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "grammar/expr.h"
#include "grammar/grammar.h"
#include "grammar/json_value.h"

namespace staffel::grammar {

class JsonTerms {
 public:
  JsonTerms(ExprPool& pool, JsonSpace space);

  ExprId space() const { return space_; }  // after { [ , and before } ]
  ExprId colon() const { return colon_; }  // with what may follow it
  ExprId comma() const { return comma_; }  // with what may follow it

  ExprId AnyString();  // with its quotes
  ExprId AnyNumber();
  ExprId AnyInteger();
  ExprId AnyBool();
  ExprId AnyValue();
  ExprId AnyObject();
  ExprId AnyArray();
  ExprId StringChar();  // one character between quotes

  ExprId Quoted(ExprId content) {
    return pool_.Sequence({pool_.Literal("\""), content, pool_.Literal("\"")});
  }
  // { content } and [ content ]. Content that is not empty ends with space().
  ExprId Braces(ExprId content);
  ExprId Brackets(ExprId content);
  ExprId Member(ExprId key, ExprId value) { return pool_.Sequence({key, colon_, value}); }
  // This very value, its members in their order.
  ExprId Constant(const JsonValue& value);

 private:
  ExprId Enclosed(std::string_view open, ExprId content, std::string_view close);

  ExprPool& pool_;
  ExprId space_, colon_, comma_;
  RuleId any_value_ = -1, any_object_ = -1, any_array_ = -1;
};

}  // namespace staffel::grammar
