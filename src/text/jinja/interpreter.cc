#include "text/jinja/interpreter.h"

#include "text/jinja/error.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace staffel::jinja {

// A block's scope, from here to the end of the C++ scope.
class Interpreter::ScopeGuard {
 public:
  // parent: the scope that surrounds it in the template.
  ScopeGuard(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), outer_(interpreter.scope_) {
    if (interpreter.free_scopes_.empty()) {
      interpreter.scopes_.push_back(std::make_unique<Scope>());
      scope_ = interpreter.scopes_.back().get();
    } else {
      scope_ = interpreter.free_scopes_.back();
      interpreter.free_scopes_.pop_back();
    }
    scope_->parent = parent;
    interpreter.scope_ = scope_;
  }
  explicit ScopeGuard(Interpreter& interpreter) : ScopeGuard(interpreter, interpreter.scope_) {}
  ~ScopeGuard() {
    interpreter_.scope_ = outer_;
    if (scope_->captured) return;
    scope_->variables.clear();
    interpreter_.free_scopes_.push_back(scope_);
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* const outer_;
  Scope* scope_;
};

// Sends output to a text of its own while it lives.
class Interpreter::CaptureGuard {
 public:
  explicit CaptureGuard(Interpreter& interpreter)
      : interpreter_(interpreter), outer_(interpreter.out_), builder_(interpreter.runtime_) {
    interpreter.out_ = &builder_;
  }
  ~CaptureGuard() { interpreter_.out_ = outer_; }
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;

  Value Take() { return builder_.TakeValue(); }

 private:
  Interpreter& interpreter_;
  TextBuilder* const outer_;
  TextBuilder builder_;
};

class Interpreter::Macro final : public Object {
 public:
  Macro(Interpreter& interpreter, const Statement& definition, Scope* scope)
      : interpreter_(interpreter), definition_(definition), scope_(scope) {}
  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  Value Call(Runtime&, Arguments& arguments) override {
    return interpreter_.CallMacro(*this, arguments);
  }
  std::optional<Value> Attribute(Runtime& runtime, std::string_view name) const override {
    if (name == "name") return runtime.MakeString(this->name());
    return std::nullopt;
  }

  std::string Repr() const override { return StrCat("<Macro '", name(), "'>"); }

  std::string_view name() const {
    if (definition_.symbol < 0) return "caller";
    return interpreter_.program_.symbols[static_cast<size_t>(definition_.symbol)];
  }
  const Statement& definition() const { return definition_; }
  Scope* scope() const { return scope_; }

 private:
  Interpreter& interpreter_;
  const Statement& definition_;
  Scope* const scope_;  // where the macro was defined
};

// One run of a for block; what its `loop` asks for.
class Interpreter::ForLoop final : public LoopDriver {
 public:
  ForLoop(Interpreter& interpreter, const Statement& statement, std::vector<Value> items, int level)
      : interpreter_(interpreter),
        statement_(statement),
        outer_(interpreter.scope_),
        loop_(std::make_shared<Loop>(std::move(items), statement.condition != nullptr, level,
                                     this)) {}
  ~ForLoop() override { loop_->End(); }

  bool Accepts(const Value& item) override {
    const ScopeGuard scope(interpreter_, outer_);
    interpreter_.Assign(*statement_.target, item);
    return IsTrue(interpreter_.Evaluate(*statement_.condition));
  }

  Value Recurse(const Value& items, int level) override {
    if (!statement_.recursive) Fail("the loop must be marked 'recursive' to be called");
    const Runtime::Nesting nesting(interpreter_.runtime_);
    Scope* const caller = std::exchange(interpreter_.scope_, outer_);
    CaptureGuard capture(interpreter_);
    interpreter_.RunLoop(statement_, items, level);
    interpreter_.scope_ = caller;
    return capture.Take();
  }

  Flow Run() {
    size_t index = 0;
    bool completed = false;  // one run of the body reached its end: what Jinja's `else` looks at
    const Value* item;
    for (; (item = loop_->Item(index)) != nullptr; index++) {
      interpreter_.runtime_.Step();
      loop_->MoveTo(index);
      const ScopeGuard scope(interpreter_, outer_);
      interpreter_.SetInScope(interpreter_.program_.loop_symbol,
                              Value(std::shared_ptr<Object>(loop_)));
      interpreter_.Assign(*statement_.target, *item);
      const Flow flow = interpreter_.ExecuteBody(statement_.body);
      if (flow == Flow::kBreak) break;
      completed |= flow == Flow::kNormal;
    }
    if (completed || statement_.otherwise.empty()) return Flow::kNormal;
    const ScopeGuard scope(interpreter_, outer_);
    return interpreter_.ExecuteBody(statement_.otherwise);
  }

 private:
  Interpreter& interpreter_;
  const Statement& statement_;
  Scope* const outer_;
  const std::shared_ptr<Loop> loop_;
};

Interpreter::Interpreter(const Program& program, Runtime& runtime)
    : program_(program), runtime_(runtime), root_(program.symbols.size()) {}

Interpreter::~Interpreter() = default;

Text Interpreter::Run() {
  TextBuilder out(runtime_);
  out_ = &out;
  ExecuteBody(program_.body);
  if (out.text().text.size() > runtime_.limits().output_bytes) {
    Fail("the output is longer than ", runtime_.limits().output_bytes, " bytes");
  }
  return out.Take();
}

Interpreter::Flow Interpreter::ExecuteBody(const Body& body) {
  const Runtime::Nesting nesting(runtime_);
  for (const auto& statement : body) {
    runtime_.Step();
    const Flow flow = Execute(*statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::Execute(const Statement& statement) {
  using SK = Statement::Kind;
  runtime_.line = statement.line;
  switch (statement.kind) {
    case SK::kText:
      out_->Append(statement.text);
      break;
    case SK::kPrint:
      Print(Evaluate(*statement.value));
      break;
    case SK::kIf:
      return ExecuteIf(statement);
    case SK::kFor:
      return ExecuteFor(statement);
    case SK::kSet:
      Assign(*statement.target, Evaluate(*statement.value));
      break;
    case SK::kSetBlock:
      return ExecuteSetBlock(statement);
    case SK::kWith:
      return ExecuteWith(statement);
    case SK::kMacro:
      SetInScope(statement.symbol, MakeMacro(statement));
      break;
    case SK::kCallBlock:
      ExecuteCallBlock(statement);
      break;
    case SK::kFilterBlock:
      return ExecuteFilterBlock(statement);
    case SK::kScope: {
      const ScopeGuard scope(*this);
      return ExecuteBody(statement.body);
    }
    case SK::kBreak:
      return Flow::kBreak;
    case SK::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteIf(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (IsTrue(Evaluate(*branch.condition))) return ExecuteBody(branch.body);
  }
  return ExecuteBody(statement.otherwise);
}

Interpreter::Flow Interpreter::ExecuteFor(const Statement& statement) {
  const Value items = Evaluate(*statement.value);
  runtime_.line = statement.line;
  return RunLoop(statement, items, 0);
}

Interpreter::Flow Interpreter::RunLoop(const Statement& statement, const Value& items, int level) {
  return ForLoop(*this, statement, Items(runtime_, items), level).Run();
}

Value Interpreter::Capture(const Body& body, Flow* flow) {
  CaptureGuard capture(*this);
  const ScopeGuard scope(*this);
  *flow = ExecuteBody(body);
  return capture.Take();
}

Value Interpreter::Filtered(const Expression* filters, Value text) {
  if (filters == nullptr) return text;
  const Value* outer = std::exchange(block_input_, &text);
  Value result = Evaluate(*filters);
  block_input_ = outer;
  return result;
}

Interpreter::Flow Interpreter::ExecuteSetBlock(const Statement& statement) {
  Flow flow;
  Value text = Capture(statement.body, &flow);
  if (flow != Flow::kNormal) return flow;
  Assign(*statement.target, Filtered(statement.value.get(), std::move(text)));
  return flow;
}

Interpreter::Flow Interpreter::ExecuteFilterBlock(const Statement& statement) {
  Flow flow;
  Value text = Capture(statement.body, &flow);
  if (flow == Flow::kNormal) Print(Filtered(statement.value.get(), std::move(text)));
  return flow;
}

Interpreter::Flow Interpreter::ExecuteWith(const Statement& statement) {
  // All values are computed before any target exists.
  std::vector<Value> values = EvaluateAll(statement.values);
  const ScopeGuard scope(*this);
  for (size_t i = 0; i < values.size(); i++) Assign(*statement.targets[i], std::move(values[i]));
  return ExecuteBody(statement.body);
}

void Interpreter::ExecuteCallBlock(const Statement& statement) {
  Arguments arguments = EvaluateArguments(*statement.value);
  arguments.named.emplace_back("caller", MakeMacro(statement));
  Print(CallNode(*statement.value, std::move(arguments)));
}

// --- macros ---

Value Interpreter::MakeMacro(const Statement& statement) {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    runtime_.meter().Add(sizeof(Scope));
    scope->captured = true;
  }
  return Value(std::shared_ptr<Object>(std::make_shared<Macro>(*this, statement, scope_)));
}

Value Interpreter::CallMacro(const Macro& macro, Arguments& arguments) {
  const Runtime::Nesting nesting(runtime_);
  const ScopeGuard scope(*this, macro.scope());
  BindParameters(macro, arguments);
  CaptureGuard capture(*this);
  const Value* outer_input = std::exchange(block_input_, nullptr);
  ExecuteBody(macro.definition().body);
  block_input_ = outer_input;
  return capture.Take();
}

void Interpreter::BindParameters(const Macro& macro, Arguments& arguments) {
  const Signature& signature = macro.definition().signature;
  bool takes_caller = false;
  for (size_t i = 0; i < signature.parameters.size(); i++) {
    const Signature::Parameter& parameter = signature.parameters[i];
    const std::string& name = program_.symbols[static_cast<size_t>(parameter.symbol)];
    takes_caller |= parameter.symbol == program_.caller_symbol;
    if (i < arguments.positional.size()) {
      SetInScope(parameter.symbol, arguments.positional[i]);
    } else if (auto named = arguments.TakeNamed(name)) {
      SetInScope(parameter.symbol, *std::move(named));
    } else if (parameter.default_value != nullptr) {
      SetInScope(parameter.symbol, Evaluate(*parameter.default_value));
    } else {
      SetInScope(parameter.symbol,
                 Value::Undefined(StrCat("parameter '", name, "' was not provided")));
    }
  }
  if (signature.uses_caller && !takes_caller) {
    auto caller = arguments.TakeNamed("caller");
    SetInScope(program_.caller_symbol,
               caller ? *std::move(caller) : Value::Undefined("No caller defined"));
  }
  const size_t count = signature.parameters.size();
  auto& positional = arguments.positional;
  if (signature.uses_positional_rest) {
    const auto rest =
        positional.begin() + static_cast<ptrdiff_t>(std::min(count, positional.size()));
    SetInScope(program_.varargs_symbol,
               runtime_.MakeTuple(std::vector<Value>(rest, positional.end())));
  } else if (positional.size() > count) {
    Fail("macro '", macro.name(), "' takes not more than ", count, " argument(s)");
  }
  if (signature.uses_named_rest) {
    DictBuilder rest(runtime_);
    for (auto& [name, value] : arguments.named) rest.Set(runtime_.MakeString(name), value);
    SetInScope(program_.kwargs_symbol, rest.Take());
  } else if (!arguments.named.empty()) {
    Fail("macro '", macro.name(), "' takes no keyword argument '", arguments.named[0].first, "'");
  }
}

// --- output and variables ---

void Interpreter::Print(const Value& value) { AppendStr(*out_, value); }

void Interpreter::SetInScope(int symbol, Value value) {
  if (scope_ == nullptr) {
    root_[static_cast<size_t>(symbol)] = std::move(value);
    return;
  }
  runtime_.Step(static_cast<int64_t>(scope_->variables.size() / 16));
  for (auto& [name, old] : scope_->variables) {
    if (name == symbol) {
      old = std::move(value);
      return;
    }
  }
  scope_->variables.emplace_back(symbol, std::move(value));
}

Value Interpreter::Lookup(int symbol) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    runtime_.Step(static_cast<int64_t>(scope->variables.size() / 16));
    for (const auto& [name, value] : scope->variables) {
      if (name == symbol) return value;
    }
  }
  const auto index = static_cast<size_t>(symbol);
  if (root_[index]) return *root_[index];
  if (program_.globals[index] != nullptr) return Value(program_.globals[index]);
  return Value::Undefined(StrCat("'", program_.symbols[index], "' is undefined"));
}

void Interpreter::Assign(const Expression& target, Value value) {
  switch (target.kind) {
    case Expression::Kind::kName:
      return SetInScope(target.symbol, std::move(value));
    case Expression::Kind::kNamespaceAttribute: {
      const Value holder = Lookup(target.symbol);
      auto* names = holder.is_object() ? dynamic_cast<Namespace*>(&holder.object()) : nullptr;
      if (names == nullptr) Fail("cannot assign attribute on non-namespace object");
      return names->Set(runtime_, target.name, std::move(value));
    }
    default:
      break;
  }
  const size_t count = target.operands.size();
  if (!IsIterable(value)) Fail("cannot unpack non-iterable ", TypeName(value), " object");
  std::vector<Value> items = Items(runtime_, value);
  if (items.size() != count) {
    Fail(items.size() < count ? "not enough" : "too many", " values to unpack (expected ", count,
         ", got ", items.size(), ")");
  }
  for (size_t i = 0; i < count; i++) Assign(*target.operands[i], std::move(items[i]));
}

}  // namespace staffel::jinja
