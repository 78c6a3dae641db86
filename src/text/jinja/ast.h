// The syntax tree of a template: plain data, built by the parser, never changed after, shared by
// all renders. Two node types with a kind each, so that a walk over the tree is one loop over
// children.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/value.h"

namespace staffel::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

// One argument of a call. At most one each of kList and kDict.
struct Argument {
  enum class Form : uint8_t { kPositional, kNamed, kList /* *x */, kDict /* **x */ };
  Form form;
  std::string name;  // kNamed
  ExpressionPtr value;
};

struct Expression {
  enum class Kind : uint8_t {
    kConstant,           // constant
    kName,               // symbol
    kList,               // operands
    kTuple,              // operands
    kDict,               // operands: key, value, key, value, ...
    kAttribute,          // operands[0].name
    kSubscript,          // operands[0][operands[1]]
    kSlice,              // operands[0][operands[1]:operands[2]:operands[3]], null where absent
    kCall,               // operands[0](arguments)
    kFilter,             // operands[0] | name(arguments); operands[0] null for the block's text
    kTest,               // operands[0] is name(arguments)
    kNot,                // operands[0]
    kNegate,             // operands[0]
    kPlus,               // operands[0]
    kBinary,             // operands[0] operators[0] operands[1]
    kCompare,            // operands[0] operators[0] operands[1] operators[1] operands[2] ...
    kConcat,             // operands joined as text
    kAnd,                // operands[0], operands[1]
    kOr,                 // operands[0], operands[1]
    kConditional,        // operands[0] if operands[1] else operands[2] (null: undefined)
    kNamespaceAttribute  // target only: name of the symbol's namespace
  };
  Kind kind;
  int line;
  int depth = 1;  // levels of nodes from here down
  int symbol = -1;
  Value constant;
  std::string name;
  std::vector<ExpressionPtr> operands;
  std::vector<Operator> operators;
  std::vector<Argument> arguments;
  const Filter* filter = nullptr;  // null: unknown, and an error when it runs
  const Test* test = nullptr;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct Signature {
  struct Parameter {
    int symbol;
    ExpressionPtr default_value;  // or null
  };
  std::vector<Parameter> parameters;
  // Whether the body uses these names, which makes the macro take what they stand for.
  bool uses_caller = false, uses_positional_rest = false, uses_named_rest = false;
};

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,         // text
    kPrint,        // value
    kIf,           // the first of `branches` whose condition holds, or `otherwise`
    kFor,          // target in value [if condition], body, otherwise
    kSet,          // target = value
    kSetBlock,     // target = body's text [through value, a chain of filters]
    kWith,         // targets = values, body
    kMacro,        // symbol, signature, body
    kCallBlock,    // value is a kCall; signature and body are its caller
    kFilterBlock,  // body's text through value, a chain of filters
    kScope,        // body, transparent ({% generation %})
    kBreak,
    kContinue
  };
  Kind kind;
  int line;
  std::string text;
  bool recursive = false;  // kFor
  int symbol = -1;
  ExpressionPtr target, value, condition;
  std::vector<ExpressionPtr> targets, values;
  std::vector<Branch> branches;
  Signature signature;
  Body body, otherwise;
};

// A parsed template.
struct Program {
  Body body;
  std::vector<std::string> symbols;  // names of variables; a node's symbol indexes it
  std::deque<String> strings;        // behind the string constants of the tree
  // By symbol: the global function of that name, or null. A variable of the name goes first.
  std::vector<std::shared_ptr<Object>> globals;
  int loop_symbol = -1, caller_symbol = -1, varargs_symbol = -1, kwargs_symbol = -1;
};

}  // namespace staffel::jinja
