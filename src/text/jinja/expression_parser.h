// Expressions of the template language: recursive descent, one function for each level of
// precedence, and the token helpers that the statement parser shares.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace staffel::jinja {

class ExpressionParser {
 public:
  // *line follows the current token.
  ExpressionParser(std::vector<Token> tokens, Program* program, int* line);

 protected:
  // Counts levels of brackets, prefixes and blocks, for which the parser recurses.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  Program& program() { return *program_; }
  // Symbols in the order in which expressions read them.
  const std::vector<int>& uses() const { return uses_; }
  int Symbol(const std::string& name);

  const Token& current() const { return tokens_[position_]; }
  Token Next();
  bool At(TokenKind kind) const { return current().kind == kind; }
  bool AtName(std::string_view name) const;
  bool AtOperator(std::string_view op) const;
  bool TakeName(std::string_view name);
  bool TakeOperator(std::string_view op);
  void Expect(TokenKind kind, std::string_view what);
  void ExpectName(std::string_view name);
  void ExpectOperator(std::string_view op);
  std::string ExpectAnyName();
  [[noreturn]] void FailUnexpected() const;

  ExpressionPtr ParseExpression();
  // One expression, or several with commas between. conditionals: whether "a if b" may stand
  // without brackets. end_name: a name that ends the tuple.
  ExpressionPtr ParseTuple(bool conditionals, std::string_view end_name = "");
  // What can be assigned to: names, tuples of them, and ns.name where namespaces are allowed.
  ExpressionPtr ParseTarget(bool namespaces, std::string_view end_name = "");
  // A chain of filters over `input`. begins: the first has no "|" before it.
  ExpressionPtr ParseFilters(ExpressionPtr input, bool begins = false);

 private:
  ExpressionPtr Make(Expression::Kind kind, int line) const;
  // Appends an operand and keeps count of depth.
  void Add(Expression* parent, ExpressionPtr operand) const;
  void Deepen(Expression* parent, int child_depth) const;
  const Token& Ahead() const;
  bool AtTupleEnd(std::string_view end_name) const;

  ExpressionPtr ParseConditional();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseComparison();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool filters);
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseName();
  ExpressionPtr ParseString();
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  ExpressionPtr ParseBrackets();
  ExpressionPtr ParseTargetItem(bool namespaces);
  ExpressionPtr ParsePostfix(ExpressionPtr value);
  ExpressionPtr ParseFiltersAndTests(ExpressionPtr value);
  ExpressionPtr ParseDot(ExpressionPtr value);
  ExpressionPtr ParseSubscript(ExpressionPtr value);
  ExpressionPtr ParseCall(ExpressionPtr callee);
  ExpressionPtr ParseTest(ExpressionPtr value);
  void ParseArguments(Expression* call);
  ExpressionPtr MakeBinary(Operator op, ExpressionPtr left, ExpressionPtr right, int line) const;
  std::string ParseDottedName();

  std::vector<Token> tokens_;
  Program* const program_;
  int& line_;
  size_t position_ = 0;
  int nesting_ = 0;
  std::unordered_map<std::string, int> symbols_;
  std::vector<int> uses_;
};

}  // namespace staffel::jinja
