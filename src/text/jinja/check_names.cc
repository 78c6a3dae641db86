#include <algorithm>
#include <unordered_map>

#include "text/jinja/error.h"
#include "text/jinja/parser.h"

namespace staffel::jinja {
namespace {

using EK = Expression::Kind;

class NameChecker {
 public:
  NameChecker(const Program& program, int* line)
      : program_(program), line_(*line), assigned_(program.symbols.size(), false) {}

  void Run() {
    MarkAssigned(program_.body);
    for (const int symbol : {program_.loop_symbol, program_.caller_symbol}) Mark(symbol);
    CheckBody(program_.body);
  }

 private:
  void Mark(int symbol) {
    if (symbol >= 0) assigned_[static_cast<size_t>(symbol)] = true;
  }

  void MarkTarget(const Expression* target) {
    if (target == nullptr) return;
    if (target->kind == EK::kName) Mark(target->symbol);
    for (const ExpressionPtr& operand : target->operands) MarkTarget(operand.get());
  }

  // Every name that some part of the template gives a value: it may hold a macro.
  void MarkAssigned(const Body& body) {
    for (const auto& statement : body) {
      if (statement->kind == Statement::Kind::kMacro) Mark(statement->symbol);
      MarkTarget(statement->target.get());
      for (const ExpressionPtr& target : statement->targets) MarkTarget(target.get());
      for (const auto& parameter : statement->signature.parameters) Mark(parameter.symbol);
      for (const Branch& branch : statement->branches) MarkAssigned(branch.body);
      MarkAssigned(statement->body);
      MarkAssigned(statement->otherwise);
    }
  }

  void CheckBody(const Body& body) {
    for (const auto& statement : body) CheckStatement(*statement);
  }

  void CheckStatement(const Statement& statement) {
    const size_t guards = guards_.size();
    for (const Branch& branch : statement.branches) CollectGuards(branch.condition.get());
    for (const Branch& branch : statement.branches) {
      Check(branch.condition.get());
      CheckBody(branch.body);
    }
    for (const Expression* node : {statement.value.get(), statement.condition.get()}) {
      Check(node);
    }
    for (const ExpressionPtr& value : statement.values) Check(value.get());
    for (const auto& parameter : statement.signature.parameters) {
      Check(parameter.default_value.get());
    }
    CheckBody(statement.body);
    CheckBody(statement.otherwise);
    DropGuards(guards);
  }

  // Names whose existence the condition asks for.
  void CollectGuards(const Expression* node) {
    if (node == nullptr) return;
    if (node->kind == EK::kTest) {
      const Expression& subject = *node->operands[0];
      const bool asks_variable =
          node->name == "defined" || node->name == "undefined" || node->name == "callable";
      if (asks_variable && subject.kind == EK::kName) {
        AddGuard(program_.symbols[static_cast<size_t>(subject.symbol)]);
      }
      const bool asks_builtin = node->name == "filter" || node->name == "test";
      if (asks_builtin && subject.kind == EK::kConstant && subject.constant.is_string()) {
        AddGuard(subject.constant.bytes());
      }
    }
    for (const ExpressionPtr& operand : node->operands) CollectGuards(operand.get());
  }

  void AddGuard(const std::string& name) {
    guards_.push_back(name);
    guard_counts_[name]++;
  }

  void DropGuards(size_t count) {
    for (; guards_.size() > count; guards_.pop_back()) guard_counts_[guards_.back()]--;
  }

  bool IsGuarded(const std::string& name) const {
    const auto found = guard_counts_.find(name);
    return found != guard_counts_.end() && found->second > 0;
  }

  // in_chain: part of an and/or whose guards are collected already.
  void Check(const Expression* node, bool in_chain = false) {
    if (node == nullptr) return;
    const bool chain = node->kind == EK::kAnd || node->kind == EK::kOr;
    const size_t guards = guards_.size();
    if (node->kind == EK::kConditional) CollectGuards(node->operands[1].get());
    if (chain && !in_chain) CollectGuards(node);
    line_ = node->line;
    if (node->kind == EK::kFilter && node->filter == nullptr && !IsGuarded(node->name)) {
      Fail("there is no filter named '", node->name, "'");
    }
    if (node->kind == EK::kTest && node->test == nullptr && !IsGuarded(node->name)) {
      Fail("there is no test named '", node->name, "'");
    }
    if (node->kind == EK::kCall) CheckCallee(*node->operands[0]);
    for (const ExpressionPtr& operand : node->operands) Check(operand.get(), chain);
    for (const Argument& argument : node->arguments) Check(argument.value.get());
    DropGuards(guards);
  }

  void CheckCallee(const Expression& callee) const {
    if (callee.kind != EK::kName) return;
    const auto symbol = static_cast<size_t>(callee.symbol);
    const std::string& name = program_.symbols[symbol];
    if (program_.globals[symbol] == nullptr && !assigned_[symbol] && !IsGuarded(name)) {
      Fail("there is no function named '", name, "'");
    }
  }

  const Program& program_;
  int& line_;
  std::vector<bool> assigned_;
  std::vector<std::string> guards_;                    // of the conditions around, outermost first
  std::unordered_map<std::string, int> guard_counts_;  // how often each is in guards_
};

}  // namespace

void CheckNames(const Program& program, int* line) { NameChecker(program, line).Run(); }

}  // namespace staffel::jinja
