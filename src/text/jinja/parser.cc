#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <unordered_map>

#include "text/jinja/error.h"
#include "text/jinja/expression_parser.h"

namespace staffel::jinja {
namespace {

using StatementPtr = std::unique_ptr<Statement>;

// Statements; expressions are ExpressionParser's.
class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  void ParseAll() {
    program().body = ParseBody({});
    if (!At(TokenKind::kEnd)) FailUnexpected();
  }

 private:
  static StatementPtr Make(Statement::Kind kind, int line) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  // Statements up to a tag named in `ends`, whose name is then the current token; up to the end of
  // the template if there are none.
  Body ParseBody(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    Body body;
    while (!At(TokenKind::kEnd)) {
      if (At(TokenKind::kData)) {
        StatementPtr text = Make(Statement::Kind::kText, current().line);
        text->text = Next().text;
        body.push_back(std::move(text));
      } else if (At(TokenKind::kVariableBegin)) {
        StatementPtr print = Make(Statement::Kind::kPrint, Next().line);
        print->value = ParseTuple(true);
        Expect(TokenKind::kVariableEnd, "'}}'");
        body.push_back(std::move(print));
      } else {
        Expect(TokenKind::kBlockBegin, "'{%'");
        if (!At(TokenKind::kName)) Fail("a tag needs a name, got ", Describe(current()));
        if (std::find(ends.begin(), ends.end(), current().text) != ends.end()) return body;
        body.push_back(ParseStatement(ends));
        Expect(TokenKind::kBlockEnd, "'%}'");
      }
    }
    if (ends.size() > 0) Fail("the template ends before '", *(ends.end() - 1), "'");
    return body;
  }

  // The body of a tag, up to a tag named in `ends`; that tag's name is taken and returned.
  std::string ParseBlock(Body* body, std::initializer_list<std::string_view> ends) {
    TakeOperator(":");
    Expect(TokenKind::kBlockEnd, "'%}'");
    *body = ParseBody(ends);
    return Next().text;
  }

  StatementPtr ParseStatement(std::initializer_list<std::string_view> ends) {
    const Token tag = Next();
    if (tag.text == "if") return ParseIf(tag.line);
    if (tag.text == "for") return ParseFor(tag.line);
    if (tag.text == "set") return ParseSet(tag.line);
    if (tag.text == "macro") return ParseMacro(tag.line);
    if (tag.text == "call") return ParseCallBlock(tag.line);
    if (tag.text == "filter") return ParseFilterBlock(tag.line);
    if (tag.text == "with") return ParseWith(tag.line);
    if (tag.text == "print") return ParsePrint(tag.line);
    if (tag.text == "generation") {
      StatementPtr scope = Make(Statement::Kind::kScope, tag.line);
      ParseBlock(&scope->body, {"endgeneration"});
      return scope;
    }
    if (tag.text == "break" || tag.text == "continue") {
      if (loops_ == 0) Fail("'", tag.text, "' outside of a loop");
      return Make(tag.text == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue,
                  tag.line);
    }
    if (ends.size() > 0) {
      Fail("unknown tag '", tag.text, "', looking for '", *(ends.end() - 1), "'");
    }
    Fail("unknown tag '", tag.text, "'");
  }

  StatementPtr ParseIf(int line) {
    StatementPtr statement = Make(Statement::Kind::kIf, line);
    while (true) {
      Branch& branch = statement->branches.emplace_back();
      branch.condition = ParseTuple(false);
      const std::string end = ParseBlock(&branch.body, {"elif", "else", "endif"});
      if (end == "else") ParseBlock(&statement->otherwise, {"endif"});
      if (end != "elif") return statement;
    }
  }

  static bool Targets(const Expression& target, int symbol) {
    return target.symbol == symbol ||
           std::any_of(target.operands.begin(), target.operands.end(),
                       [&](const ExpressionPtr& item) { return Targets(*item, symbol); });
  }

  StatementPtr ParseFor(int line) {
    StatementPtr statement = Make(Statement::Kind::kFor, line);
    statement->target = ParseTarget(false, "in");
    if (Targets(*statement->target, program().loop_symbol)) {
      Fail("a loop cannot have the target 'loop'");
    }
    ExpectName("in");
    statement->value = ParseTuple(false, "recursive");
    if (TakeName("if")) statement->condition = ParseExpression();
    statement->recursive = TakeName("recursive");
    loops_++;
    const std::string end = ParseBlock(&statement->body, {"endfor", "else"});
    loops_--;
    if (end == "else") ParseBlock(&statement->otherwise, {"endfor"});
    return statement;
  }

  StatementPtr ParseSet(int line) {
    StatementPtr statement = Make(Statement::Kind::kSet, line);
    statement->target = ParseTarget(true);
    if (TakeOperator("=")) {
      statement->value = ParseTuple(true);
      return statement;
    }
    statement->kind = Statement::Kind::kSetBlock;
    if (AtOperator("|")) statement->value = ParseFilters(nullptr);
    ParseBlock(&statement->body, {"endset"});
    return statement;
  }

  StatementPtr ParseWith(int line) {
    StatementPtr statement = Make(Statement::Kind::kWith, line);
    while (!At(TokenKind::kBlockEnd)) {
      if (!statement->targets.empty()) ExpectOperator(",");
      statement->targets.push_back(ParseTarget(false));
      ExpectOperator("=");
      statement->values.push_back(ParseExpression());
    }
    ParseBlock(&statement->body, {"endwith"});
    return statement;
  }

  StatementPtr ParsePrint(int line) {
    StatementPtr scope = Make(Statement::Kind::kScope, line);
    while (!At(TokenKind::kBlockEnd)) {
      if (!scope->body.empty()) ExpectOperator(",");
      scope->body.push_back(Make(Statement::Kind::kPrint, line));
      scope->body.back()->value = ParseExpression();
    }
    return scope;
  }

  void ParseSignature(Signature* signature) {
    ExpectOperator("(");
    bool has_default = false;
    while (!AtOperator(")")) {
      if (!signature->parameters.empty()) ExpectOperator(",");
      const int symbol = Symbol(ExpectAnyName());
      ExpressionPtr default_value;
      if (TakeOperator("=")) {
        default_value = ParseExpression();
        has_default = true;
      } else if (has_default) {
        Fail("a parameter without default follows one with a default");
      }
      if (symbol == program().caller_symbol && default_value == nullptr) {
        Fail("a parameter 'caller' needs a default");
      }
      signature->parameters.push_back({symbol, std::move(default_value)});
    }
    ExpectOperator(")");
  }

  // The body of a macro or call block, in which loops outside cannot be left.
  void ParseMacroBody(Statement* statement, std::string_view end) {
    const int outer_loops = std::exchange(loops_, 0);
    const size_t first_use = uses().size();
    ParseBlock(&statement->body, {end});
    loops_ = outer_loops;
    for (size_t i = first_use; i < uses().size(); i++) {
      if (uses()[i] == program().caller_symbol) statement->signature.uses_caller = true;
      if (uses()[i] == program().varargs_symbol) statement->signature.uses_positional_rest = true;
      if (uses()[i] == program().kwargs_symbol) statement->signature.uses_named_rest = true;
    }
  }

  StatementPtr ParseMacro(int line) {
    StatementPtr statement = Make(Statement::Kind::kMacro, line);
    statement->symbol = Symbol(ExpectAnyName());
    ParseSignature(&statement->signature);
    ParseMacroBody(statement.get(), "endmacro");
    return statement;
  }

  StatementPtr ParseCallBlock(int line) {
    StatementPtr statement = Make(Statement::Kind::kCallBlock, line);
    if (AtOperator("(")) ParseSignature(&statement->signature);
    statement->value = ParseExpression();
    if (statement->value->kind != Expression::Kind::kCall) Fail("'call' needs a call");
    ParseMacroBody(statement.get(), "endcall");
    return statement;
  }

  StatementPtr ParseFilterBlock(int line) {
    StatementPtr statement = Make(Statement::Kind::kFilterBlock, line);
    statement->value = ParseFilters(nullptr, true);
    ParseBlock(&statement->body, {"endfilter"});
    return statement;
  }

  int loops_ = 0;
};

}  // namespace

std::unique_ptr<Program> ParseTemplate(std::string_view source, int* line) {
  auto program = std::make_unique<Program>();
  std::vector<Token> tokens = Tokenize(source, line);
  Parser(std::move(tokens), program.get(), line).ParseAll();
  return program;
}

}  // namespace staffel::jinja
