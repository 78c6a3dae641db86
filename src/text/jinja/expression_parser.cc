#include "text/jinja/expression_parser.h"

#include <algorithm>

#include "text/jinja/error.h"

namespace staffel::jinja {
namespace {

using EK = Expression::Kind;

// Levels of nodes in one expression, and of brackets and blocks in the source. Walks over the tree
// recurse this deep; hand-written templates stay below 30.
constexpr int kDepthMax = 250;
constexpr int kNestingMax = 120;

struct OperatorName {
  std::string_view text;
  Operator op;
};

constexpr OperatorName kComparisons[] = {
    {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
    {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
constexpr OperatorName kSums[] = {{"+", Operator::kAdd}, {"-", Operator::kSubtract}};
constexpr OperatorName kProducts[] = {{"*", Operator::kMultiply},
                                      {"/", Operator::kDivide},
                                      {"//", Operator::kFloorDivide},
                                      {"%", Operator::kModulo}};

template <size_t count>
const OperatorName* FindOperator(const OperatorName (&names)[count], const Token& token) {
  if (token.kind != TokenKind::kOperator) return nullptr;
  const auto* found =
      std::find_if(std::begin(names), std::end(names),
                   [&](const OperatorName& name) { return name.text == token.text; });
  return found != std::end(names) ? found : nullptr;
}

}  // namespace

ExpressionParser::ExpressionParser(std::vector<Token> tokens, Program* program, int* line)
    : tokens_(std::move(tokens)), program_(program), line_(*line) {
  line_ = current().line;
  program->loop_symbol = Symbol("loop");
  program->caller_symbol = Symbol("caller");
  program->varargs_symbol = Symbol("varargs");
  program->kwargs_symbol = Symbol("kwargs");
}

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kNestingMax) {
    --parser_.nesting_;
    Fail("blocks or brackets are nested deeper than ", kNestingMax);
  }
}

int ExpressionParser::Symbol(const std::string& name) {
  const auto [it, added] = symbols_.emplace(name, static_cast<int>(program_->symbols.size()));
  if (added) program_->symbols.push_back(name);
  return it->second;
}

// --- tokens ---

Token ExpressionParser::Next() {
  Token token = std::move(tokens_[position_]);
  if (token.kind == TokenKind::kEnd) {
    tokens_[position_].kind = TokenKind::kEnd;
    return token;
  }
  position_++;
  line_ = current().line;
  return token;
}

const Token& ExpressionParser::Ahead() const {
  return tokens_[std::min(position_ + 1, tokens_.size() - 1)];
}

bool ExpressionParser::AtName(std::string_view name) const {
  return At(TokenKind::kName) && current().text == name;
}

bool ExpressionParser::AtOperator(std::string_view op) const {
  return At(TokenKind::kOperator) && current().text == op;
}

bool ExpressionParser::TakeName(std::string_view name) {
  if (!AtName(name)) return false;
  Next();
  return true;
}

bool ExpressionParser::TakeOperator(std::string_view op) {
  if (!AtOperator(op)) return false;
  Next();
  return true;
}

void ExpressionParser::Expect(TokenKind kind, std::string_view what) {
  if (!At(kind)) Fail("expected ", what, ", got ", Describe(current()));
  Next();
}

void ExpressionParser::ExpectName(std::string_view name) {
  if (!TakeName(name)) Fail("expected '", name, "', got ", Describe(current()));
}

void ExpressionParser::ExpectOperator(std::string_view op) {
  if (!TakeOperator(op)) Fail("expected '", op, "', got ", Describe(current()));
}

std::string ExpressionParser::ExpectAnyName() {
  if (!At(TokenKind::kName)) Fail("expected a name, got ", Describe(current()));
  return Next().text;
}

void ExpressionParser::FailUnexpected() const { Fail("unexpected ", Describe(current())); }

// --- nodes ---

ExpressionPtr ExpressionParser::Make(EK kind, int line) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = line;
  return expression;
}

void ExpressionParser::Deepen(Expression* parent, int child_depth) const {
  parent->depth = std::max(parent->depth, child_depth + 1);
  if (parent->depth > kDepthMax) Fail("an expression has more than ", kDepthMax, " levels");
}

void ExpressionParser::Add(Expression* parent, ExpressionPtr operand) const {
  if (operand != nullptr) Deepen(parent, operand->depth);
  parent->operands.push_back(std::move(operand));
}

ExpressionPtr ExpressionParser::MakeBinary(Operator op, ExpressionPtr left, ExpressionPtr right,
                                           int line) const {
  ExpressionPtr binary = Make(EK::kBinary, line);
  binary->operators = {op};
  Add(binary.get(), std::move(left));
  Add(binary.get(), std::move(right));
  return binary;
}

// --- levels of precedence, loosest first ---

ExpressionPtr ExpressionParser::ParseExpression() {
  const Nesting nesting(*this);
  return ParseConditional();
}

ExpressionPtr ExpressionParser::ParseConditional() {
  int line = current().line;
  ExpressionPtr value = ParseOr();
  while (TakeName("if")) {
    ExpressionPtr conditional = Make(EK::kConditional, line);
    Add(conditional.get(), std::move(value));
    Add(conditional.get(), ParseOr());
    Add(conditional.get(), TakeName("else") ? ParseExpression() : nullptr);
    value = std::move(conditional);
    line = current().line;
  }
  return value;
}

ExpressionPtr ExpressionParser::ParseOr() {
  ExpressionPtr left = ParseAnd();
  while (AtName("or")) {
    ExpressionPtr node = Make(EK::kOr, Next().line);
    Add(node.get(), std::move(left));
    Add(node.get(), ParseAnd());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  while (AtName("and")) {
    ExpressionPtr node = Make(EK::kAnd, Next().line);
    Add(node.get(), std::move(left));
    Add(node.get(), ParseNot());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseNot() {
  if (!AtName("not")) return ParseComparison();
  const Nesting nesting(*this);
  ExpressionPtr node = Make(EK::kNot, Next().line);
  Add(node.get(), ParseNot());
  return node;
}

ExpressionPtr ExpressionParser::ParseComparison() {
  const int line = current().line;
  ExpressionPtr first = ParseSum();
  ExpressionPtr node;
  while (true) {
    Operator op;
    if (const OperatorName* found = FindOperator(kComparisons, current())) {
      op = found->op;
      Next();
    } else if (TakeName("in")) {
      op = Operator::kIn;
    } else if (AtName("not") && Ahead().kind == TokenKind::kName && Ahead().text == "in") {
      Next();
      Next();
      op = Operator::kNotIn;
    } else {
      break;
    }
    if (node == nullptr) {
      node = Make(EK::kCompare, line);
      Add(node.get(), std::move(first));
    }
    node->operators.push_back(op);
    Add(node.get(), ParseSum());
  }
  return node != nullptr ? std::move(node) : std::move(first);
}

ExpressionPtr ExpressionParser::ParseSum() {
  const int line = current().line;
  ExpressionPtr left = ParseConcat();
  while (const OperatorName* found = FindOperator(kSums, current())) {
    Next();
    ExpressionPtr right = ParseConcat();
    left = MakeBinary(found->op, std::move(left), std::move(right), line);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseConcat() {
  const int line = current().line;
  ExpressionPtr first = ParseProduct();
  if (!AtOperator("~")) return first;
  ExpressionPtr node = Make(EK::kConcat, line);
  Add(node.get(), std::move(first));
  while (TakeOperator("~")) Add(node.get(), ParseProduct());
  return node;
}

ExpressionPtr ExpressionParser::ParseProduct() {
  const int line = current().line;
  ExpressionPtr left = ParsePower();
  while (const OperatorName* found = FindOperator(kProducts, current())) {
    Next();
    ExpressionPtr right = ParsePower();
    left = MakeBinary(found->op, std::move(left), std::move(right), line);
  }
  return left;
}

// Binds to the left in Jinja, unlike Python.
ExpressionPtr ExpressionParser::ParsePower() {
  const int line = current().line;
  ExpressionPtr left = ParseUnary(true);
  while (TakeOperator("**")) {
    ExpressionPtr right = ParseUnary(true);
    left = MakeBinary(Operator::kPower, std::move(left), std::move(right), line);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseUnary(bool filters) {
  ExpressionPtr value;
  if (AtOperator("-") || AtOperator("+")) {
    const Nesting nesting(*this);
    const Token sign = Next();
    value = Make(sign.text == "-" ? EK::kNegate : EK::kPlus, sign.line);
    Add(value.get(), ParseUnary(false));
  } else {
    value = ParsePrimary();
  }
  value = ParsePostfix(std::move(value));
  return filters ? ParseFiltersAndTests(std::move(value)) : std::move(value);
}

// --- primaries ---

ExpressionPtr ExpressionParser::ParsePrimary() {
  switch (current().kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kString:
      return ParseString();
    case TokenKind::kInteger: {
      const Token token = Next();
      ExpressionPtr node = Make(EK::kConstant, token.line);
      node->constant = Value::Integer(token.integer);
      return node;
    }
    case TokenKind::kFloat: {
      const Token token = Next();
      ExpressionPtr node = Make(EK::kConstant, token.line);
      node->constant = Value::Float(token.number);
      return node;
    }
    default:
      break;
  }
  if (AtOperator("(")) return ParseBrackets();
  if (AtOperator("[")) return ParseList();
  if (AtOperator("{")) return ParseDict();
  FailUnexpected();
}

ExpressionPtr ExpressionParser::ParseName() {
  const Token token = Next();
  const std::string& name = token.text;
  ExpressionPtr node = Make(EK::kConstant, token.line);
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node->constant = Value::Bool(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    node->constant = Value::None();
  } else {
    node->kind = EK::kName;
    node->symbol = Symbol(name);
    uses_.push_back(node->symbol);
  }
  return node;
}

ExpressionPtr ExpressionParser::ParseString() {
  ExpressionPtr node = Make(EK::kConstant, current().line);
  std::string bytes;
  while (At(TokenKind::kString)) bytes += Next().text;
  const String& kept = program_->strings.emplace_back(TemplateText(bytes));
  // Owned by the program, which outlives every render: no count that threads would contend for.
  node->constant = Value(std::shared_ptr<const String>(std::shared_ptr<const String>(), &kept));
  return node;
}

ExpressionPtr ExpressionParser::ParseBrackets() {
  Next();
  const int line = current().line;
  ExpressionPtr value = AtOperator(")") ? Make(EK::kTuple, line) : ParseTuple(true);
  ExpectOperator(")");
  return value;
}

ExpressionPtr ExpressionParser::ParseList() {
  ExpressionPtr list = Make(EK::kList, Next().line);
  while (!AtOperator("]")) {
    if (!list->operands.empty()) ExpectOperator(",");
    if (AtOperator("]")) break;
    Add(list.get(), ParseExpression());
  }
  ExpectOperator("]");
  return list;
}

ExpressionPtr ExpressionParser::ParseDict() {
  ExpressionPtr dict = Make(EK::kDict, Next().line);
  while (!AtOperator("}")) {
    if (!dict->operands.empty()) ExpectOperator(",");
    if (AtOperator("}")) break;
    Add(dict.get(), ParseExpression());
    ExpectOperator(":");
    Add(dict.get(), ParseExpression());
  }
  ExpectOperator("}");
  return dict;
}

bool ExpressionParser::AtTupleEnd(std::string_view end_name) const {
  return At(TokenKind::kVariableEnd) || At(TokenKind::kBlockEnd) || AtOperator(")") ||
         (!end_name.empty() && AtName(end_name));
}

ExpressionPtr ExpressionParser::ParseTuple(bool conditionals, std::string_view end_name) {
  const Nesting nesting(*this);
  const int line = current().line;
  ExpressionPtr first = conditionals ? ParseConditional() : ParseOr();
  if (!AtOperator(",")) return first;
  ExpressionPtr tuple = Make(EK::kTuple, line);
  Add(tuple.get(), std::move(first));
  while (TakeOperator(",")) {
    if (AtTupleEnd(end_name)) break;
    Add(tuple.get(), conditionals ? ParseConditional() : ParseOr());
  }
  return tuple;
}

ExpressionPtr ExpressionParser::ParseTargetItem(bool namespaces) {
  const int line = current().line;
  if (TakeOperator("(")) {
    ExpressionPtr inner = ParseTarget(false);
    ExpectOperator(")");
    return inner;
  }
  const std::string name = ExpectAnyName();
  for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) Fail("cannot assign to '", name, "'");
  }
  ExpressionPtr target = Make(EK::kName, line);
  target->symbol = Symbol(name);
  if (namespaces && TakeOperator(".")) {
    target->kind = EK::kNamespaceAttribute;
    target->name = ExpectAnyName();
  }
  return target;
}

ExpressionPtr ExpressionParser::ParseTarget(bool namespaces, std::string_view end_name) {
  const Nesting nesting(*this);
  const int line = current().line;
  ExpressionPtr first = ParseTargetItem(namespaces);
  if (!AtOperator(",")) return first;
  ExpressionPtr tuple = Make(EK::kTuple, line);
  Add(tuple.get(), std::move(first));
  while (TakeOperator(",")) {
    if (AtTupleEnd(end_name)) break;
    Add(tuple.get(), ParseTargetItem(namespaces));
  }
  return tuple;
}

// --- what follows a primary ---

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr value) {
  while (true) {
    if (AtOperator(".")) {
      value = ParseDot(std::move(value));
    } else if (AtOperator("[")) {
      value = ParseSubscript(std::move(value));
    } else if (AtOperator("(")) {
      value = ParseCall(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::ParseFiltersAndTests(ExpressionPtr value) {
  while (true) {
    if (AtOperator("|")) {
      value = ParseFilters(std::move(value));
    } else if (AtName("is")) {
      value = ParseTest(std::move(value));
    } else if (AtOperator("(")) {
      value = ParseCall(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::ParseDot(ExpressionPtr value) {
  const int line = Next().line;
  ExpressionPtr node = Make(EK::kAttribute, line);
  Add(node.get(), std::move(value));
  if (At(TokenKind::kInteger)) {
    node->kind = EK::kSubscript;
    ExpressionPtr index = Make(EK::kConstant, line);
    index->constant = Value::Integer(Next().integer);
    Add(node.get(), std::move(index));
  } else {
    node->name = ExpectAnyName();
  }
  return node;
}

ExpressionPtr ExpressionParser::ParseSubscript(ExpressionPtr value) {
  ExpressionPtr node = Make(EK::kSubscript, Next().line);
  Add(node.get(), std::move(value));
  if (AtOperator("]")) FailUnexpected();
  if (!AtOperator(":")) Add(node.get(), ParseExpression());
  if (AtOperator(":")) {
    node->kind = EK::kSlice;
    if (node->operands.size() == 1) node->operands.push_back(nullptr);
    for (int part = 0; part < 2; part++) {
      const bool present = TakeOperator(":") && !AtOperator(":") && !AtOperator("]");
      Add(node.get(), present ? ParseExpression() : nullptr);
    }
  }
  ExpectOperator("]");
  return node;
}

void ExpressionParser::ParseArguments(Expression* call) {
  using Form = Argument::Form;
  ExpectOperator("(");
  bool named = false, list = false, dict = false;
  while (!AtOperator(")")) {
    if (!call->arguments.empty()) {
      ExpectOperator(",");
      if (AtOperator(")")) break;
    }
    Argument argument{Form::kPositional, "", nullptr};
    if (AtOperator("*") || AtOperator("**")) {
      argument.form = Next().text == "*" ? Form::kList : Form::kDict;
    } else if (At(TokenKind::kName) && Ahead().kind == TokenKind::kOperator &&
               Ahead().text == "=") {
      argument.form = Form::kNamed;
      argument.name = Next().text;
      Next();
    }
    const bool misplaced = dict || (argument.form == Form::kList && list) ||
                           (argument.form == Form::kPositional && (named || list));
    if (misplaced) Fail("the arguments of a call are in the wrong order");
    named |= argument.form == Form::kNamed;
    list |= argument.form == Form::kList;
    dict |= argument.form == Form::kDict;
    argument.value = ParseExpression();
    Deepen(call, argument.value->depth);
    call->arguments.push_back(std::move(argument));
  }
  ExpectOperator(")");
}

ExpressionPtr ExpressionParser::ParseCall(ExpressionPtr callee) {
  ExpressionPtr call = Make(EK::kCall, current().line);
  Add(call.get(), std::move(callee));
  ParseArguments(call.get());
  return call;
}

std::string ExpressionParser::ParseDottedName() {
  std::string name = ExpectAnyName();
  while (TakeOperator(".")) name += "." + ExpectAnyName();
  return name;
}

ExpressionPtr ExpressionParser::ParseFilters(ExpressionPtr input, bool begins) {
  while (begins || AtOperator("|")) {
    if (!begins) Next();
    begins = false;
    ExpressionPtr node = Make(EK::kFilter, current().line);
    Add(node.get(), std::move(input));
    node->name = ParseDottedName();
    node->filter = FindFilter(node->name);
    if (AtOperator("(")) ParseArguments(node.get());
    input = std::move(node);
  }
  return input;
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr value) {
  const int line = Next().line;
  const bool negated = TakeName("not");
  ExpressionPtr node = Make(EK::kTest, line);
  Add(node.get(), std::move(value));
  node->name = ParseDottedName();
  node->test = FindTest(node->name);
  if (AtOperator("(")) {
    ParseArguments(node.get());
  } else if (AtName("is")) {
    Fail("tests cannot be chained");
  } else if (At(TokenKind::kString) || At(TokenKind::kInteger) || At(TokenKind::kFloat) ||
             AtOperator("[") || AtOperator("{") ||
             (At(TokenKind::kName) && !AtName("else") && !AtName("or") && !AtName("and"))) {
    // One argument without brackets: "is divisibleby 3".
    ExpressionPtr argument = ParsePostfix(ParsePrimary());
    Deepen(node.get(), argument->depth);
    node->arguments.push_back({Argument::Form::kPositional, "", std::move(argument)});
  }
  if (!negated) return node;
  ExpressionPtr negation = Make(EK::kNot, line);
  Add(negation.get(), std::move(node));
  return negation;
}

}  // namespace staffel::jinja
