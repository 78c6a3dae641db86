// Runs a program once: a walk over the syntax tree. One thread, one render.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/objects.h"
#include "text/jinja/runtime.h"

namespace staffel::jinja {

class Interpreter {
 public:
  // Both must outlive the interpreter. Values of the caller's variables are set before Run.
  Interpreter(const Program& program, Runtime& runtime);
  ~Interpreter();

  void SetVariable(int symbol, Value value) {
    root_[static_cast<size_t>(symbol)] = std::move(value);
  }

  // The rendered text. Fails with a TemplateError; runtime.line is then its line.
  Text Run();

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  // Variables of one block. Scopes form a tree by `parent`; macros keep the scope of their
  // definition, which then stays until the render is over.
  struct Scope {
    Scope* parent = nullptr;
    std::vector<std::pair<int, Value>> variables;
    bool captured = false;
  };
  class ScopeGuard;
  class CaptureGuard;
  class ForLoop;
  class Macro;

  // --- statements (interpreter.cc) ---
  Flow ExecuteBody(const Body& body);
  Flow Execute(const Statement& statement);
  Flow ExecuteIf(const Statement& statement);
  Flow ExecuteFor(const Statement& statement);
  Flow RunLoop(const Statement& statement, const Value& items, int level);
  Flow ExecuteSetBlock(const Statement& statement);
  Flow ExecuteWith(const Statement& statement);
  Flow ExecuteFilterBlock(const Statement& statement);
  void ExecuteCallBlock(const Statement& statement);
  Value MakeMacro(const Statement& statement);
  Value CallMacro(const Macro& macro, Arguments& arguments);
  void BindParameters(const Macro& macro, Arguments& arguments);
  // Runs a body in a scope of its own and gives its text.
  Value Capture(const Body& body, Flow* flow);
  Value Filtered(const Expression* filters, Value text);
  void Print(const Value& value);

  void Assign(const Expression& target, Value value);
  void SetInScope(int symbol, Value value);
  Value Lookup(int symbol);

  // --- expressions (evaluate.cc) ---
  Value Evaluate(const Expression& node);
  Value EvaluateNode(const Expression& node);
  Value EvaluateDict(const Expression& node);
  Value EvaluateSlice(const Expression& node);
  Value EvaluateCall(const Expression& node);
  Value EvaluateFilter(const Expression& node);
  Value EvaluateTest(const Expression& node);
  Value EvaluateSign(const Expression& node);
  Value EvaluateBinary(const Expression& node);
  Value EvaluateCompare(const Expression& node);
  Value EvaluateConcat(const Expression& node);
  Value EvaluateConditional(const Expression& node);
  std::vector<Value> EvaluateAll(const std::vector<ExpressionPtr>& nodes);
  Arguments EvaluateArguments(const Expression& node);
  // Steps for a filter, test or method that reads the whole text.
  void ChargeText(const Value& value);
  // node.kind is kCall; `extra` arguments are added to its own.
  Value CallNode(const Expression& node, Arguments arguments);

  const Program& program_;
  Runtime& runtime_;
  std::vector<std::optional<Value>> root_;      // by symbol
  Scope* scope_ = nullptr;                      // innermost; null: root
  std::vector<std::unique_ptr<Scope>> scopes_;  // all that were made
  std::vector<Scope*> free_scopes_;
  TextBuilder* out_ = nullptr;
  const Value* block_input_ = nullptr;  // what the innermost filter block filters
};

}  // namespace staffel::jinja
