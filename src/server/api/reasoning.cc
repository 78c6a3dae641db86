#include "server/api/reasoning.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/strings.h"

namespace staffel::api {
namespace {

constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                         "high", "xhigh",   "max"};

class ReasoningReader {
 public:
  ReasoningReader(FieldReader& reader, answer::ReasoningFormat format)
      : reader_(reader), harmony_(format == answer::ReasoningFormat::kHarmony) {}

  ReasoningWish Read() {
    if (const auto effort = reader_.String("reasoning_effort"))
      SetEffort("reasoning_effort", *effort);
    ReadReasoningObject();
    ReadThinking();
    for (const char* name : {"thinking_token_budget", "thinking_budget", "max_reasoning_tokens",
                             "reasoning_budget", "thinking_budget_tokens"}) {
      if (const auto budget = reader_.Int(name, -1, INT32_MAX)) SetBudget(name, *budget);
    }
    wish_.include = wish_.include && reader_.Bool("include_reasoning").value_or(true);
    wish_.separate = reader_.Bool("separate_reasoning").value_or(true);
    if (const auto format = reader_.String("reasoning_format")) {
      if (*format != "none" && *format != "auto" && *format != "deepseek") {
        reader_.Fail("reasoning_format", "'reasoning_format' must be none, auto or deepseek");
      }
      wish_.separate = wish_.separate && *format != "none";
    }
    return std::move(wish_);
  }

 private:
  void SetEffort(const std::string& field, const std::string& effort) {
    if (std::find(std::begin(kEfforts), std::end(kEfforts), effort) == std::end(kEfforts)) {
      return reader_.Fail(field, StrCat("'", field, "' is '", effort.substr(0, 40),
                                        "'; it must be none, minimal, low, medium, high, xhigh "
                                        "or max"));
    }
    std::string known = effort;
    if (harmony_) {
      known = effort == "none" || effort == "minimal" ? "low"
              : effort == "xhigh" || effort == "max"  ? "high"
                                                      : effort;
    }
    wish_.template_kwargs["reasoning_effort"] = known;
    SetThinking(effort != "none");
  }

  // The switches of Qwen3, GLM and SmolLM3, and of DeepSeek and Granite.
  void SetThinking(bool on) {
    wish_.template_kwargs["enable_thinking"] = on;
    wish_.template_kwargs["thinking"] = on;
  }

  void SetBudget(const std::string& field, int64_t budget) {
    if (budget < 0) return;
    if (wish_.tokens_max && *wish_.tokens_max != budget) {
      return reader_.Fail(field, StrCat("'", budget_field_, "' and '", field,
                                        "' both are a budget of reasoning; send one of them"));
    }
    budget_field_ = field;
    wish_.tokens_max = static_cast<int>(budget);
  }

  // OpenRouter's.
  void ReadReasoningObject() {
    const Json* reasoning = reader_.Object("reasoning");
    if (reasoning == nullptr) return;
    FieldReader fields(*reasoning, "reasoning.");
    const auto effort = fields.String("effort");
    const auto budget = fields.Int("max_tokens", 0, INT32_MAX);
    const auto enabled = fields.Bool("enabled");
    const bool exclude = fields.Bool("exclude").value_or(false);
    if (!fields.ok()) return reader_.Fail("reasoning", fields.error()->message);
    if (enabled) SetThinking(*enabled);
    if (effort) SetEffort("reasoning.effort", *effort);
    if (budget) SetBudget("reasoning.max_tokens", *budget);
    wish_.include = !exclude;
  }

  // Anthropic's, which others have taken over.
  void ReadThinking() {
    const Json* thinking = reader_.Object("thinking");
    if (thinking == nullptr) return;
    const Json type = thinking->value("type", Json());
    const bool on = type == "enabled" || type == "adaptive" || type == "auto";
    if (!on && type != "disabled") {
      return reader_.Fail("thinking", "'thinking.type' must be enabled, adaptive or disabled");
    }
    SetThinking(on);
    FieldReader fields(*thinking, "thinking.");
    const auto budget = fields.Int("budget_tokens", 1, INT32_MAX);
    if (!fields.ok()) return reader_.Fail("thinking", fields.error()->message);
    if (budget && on) SetBudget("thinking.budget_tokens", *budget);
  }

  FieldReader& reader_;
  const bool harmony_;
  ReasoningWish wish_;
  std::string budget_field_;
};

}  // namespace

ReasoningWish ReadReasoning(FieldReader& reader, answer::ReasoningFormat format) {
  return ReasoningReader(reader, format).Read();
}

}  // namespace staffel::api
