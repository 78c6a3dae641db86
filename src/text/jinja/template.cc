#include "text/jinja/template.h"

#include <algorithm>

#include "base/strings.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace staffel::jinja {

Template::Template(std::unique_ptr<Program> program) : program_(std::move(program)) {}
Template::~Template() = default;

Result<std::unique_ptr<Template>> Template::Parse(std::string_view source) {
  constexpr size_t kSourceBytesMax = 4 << 20;
  if (source.size() > kSourceBytesMax) {
    return absl::InvalidArgumentError("the chat template is longer than 4 MiB");
  }
  if (ValidUtf8Prefix(source) != source.size()) {
    return absl::InvalidArgumentError("the chat template is not valid UTF-8");
  }
  int line = 1;
  try {
    auto program = ParseTemplate(source, &line);
    for (const std::string& name : program->symbols) program->globals.push_back(FindGlobal(name));
    CheckNames(*program, &line);
    return std::unique_ptr<Template>(new Template(std::move(program)));
  } catch (const TemplateError& error) {
    return absl::InvalidArgumentError(StrCat("chat template, line ", line, ": ", error.what()));
  }
}

Result<PromptText> Template::Render(absl::Span<const Variable> variables, const std::tm& now,
                                    const Limits& limits) const {
  int line = 0;
  try {
    size_t input_bytes = 0;
    for (const Variable& variable : variables) {
      if (variable.json != nullptr) input_bytes += JsonBytes(*variable.json);
    }
    Runtime runtime(limits, input_bytes, now);
    Interpreter interpreter(*program_, runtime);
    for (const Variable& variable : variables) {
      const auto symbol =
          std::find(program_->symbols.begin(), program_->symbols.end(), variable.name);
      if (symbol == program_->symbols.end()) continue;
      interpreter.SetVariable(static_cast<int>(symbol - program_->symbols.begin()),
                              variable.json != nullptr
                                  ? FromJson(runtime, *variable.json, variable.is_trusted)
                                  : runtime.MakeString(variable.trusted_text));
    }
    try {
      return interpreter.Run();
    } catch (const TemplateError&) {
      line = runtime.line;
      throw;
    }
  } catch (const TemplateError& error) {
    switch (error.reason) {
      case TemplateError::Reason::kRaised:
      case TemplateError::Reason::kInput:
        return absl::InvalidArgumentError(error.what());
      case TemplateError::Reason::kFailed:
        break;
    }
    return absl::InternalError(StrCat("chat template, line ", line, ": ", error.what()));
  }
}

bool Template::Mentions(std::string_view name) const {
  return std::find(program_->symbols.begin(), program_->symbols.end(), name) !=
         program_->symbols.end();
}

}  // namespace staffel::jinja
