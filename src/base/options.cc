#include "base/options.h"

#include <algorithm>

#include "base/check.h"
#include "base/option_values.h"
#include "base/strings.h"

namespace staffel {
namespace {

std::string HelpOfZero(std::string help, const std::string& zero_means) {
  return zero_means.empty() ? std::move(help) : StrCat(help, "; 0: ", zero_means);
}

// Breaks text into lines of at most `width` characters at spaces.
std::vector<std::string> Wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    size_t at = text.rfind(' ', width);
    if (at == text.npos) at = std::min(text.find(' ', width), text.size());
    lines.emplace_back(text.substr(0, at));
    text.remove_prefix(std::min(at + 1, text.size()));
  }
  if (!text.empty()) lines.emplace_back(text);
  return lines;
}

std::string EscapeTableCell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string Option::variable() const {
  std::string out = "STAFFEL_";
  for (const char c : name) out += c == '-' ? '_' : static_cast<char>(c >= 'a' ? c - 32 : c);
  return out;
}

std::string Option::key() const {
  std::string out = name;
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

Option& OptionList::Add(std::string name, std::string value, std::string default_text,
                        std::string help) {
  STAFFEL_CHECK(Find(name) == nullptr) << name;
  Option& option = options_.emplace_back();
  option.name = std::move(name);
  option.group = group_;
  option.value = std::move(value);
  option.default_text = std::move(default_text);
  option.help = std::move(help);
  option.clear = [] {};
  return option;
}

void OptionList::Integer(std::string name, std::string value, int* field, int min, int max,
                         std::string help, std::string zero_means) {
  const bool takes_auto = !zero_means.empty() && min == 0;
  Add(std::move(name), std::move(value), StrCat(*field), HelpOfZero(std::move(help), zero_means))
      .set = [=](std::string_view text) -> Status {
    if (takes_auto && text == "auto") {
      *field = 0;
      return absl::OkStatus();
    }
    STAFFEL_ASSIGN_OR_RETURN(const int64_t number, ParseInteger(text, min, max));
    *field = static_cast<int>(number);
    return absl::OkStatus();
  };
}

void OptionList::Bytes(std::string name, int64_t* field, int64_t min, int64_t max, std::string help,
                       std::string zero_means) {
  Add(std::move(name), "BYTES", FormatByteCount(*field), HelpOfZero(std::move(help), zero_means))
      .set = [=](std::string_view text) -> Status {
    STAFFEL_ASSIGN_OR_RETURN(*field, ParseByteCount(text, min, max));
    return absl::OkStatus();
  };
}

void OptionList::Time(std::string name, Duration* field, Duration min, Duration max,
                      std::string help, std::string zero_means) {
  Add(std::move(name), "TIME", FormatDuration(*field), HelpOfZero(std::move(help), zero_means))
      .set = [=](std::string_view text) -> Status {
    STAFFEL_ASSIGN_OR_RETURN(*field, ParseDuration(text, min, max));
    return absl::OkStatus();
  };
}

void OptionList::Switch(std::string name, bool* field, std::string help) {
  Option& option = Add(std::move(name), "", *field ? "true" : "false", std::move(help));
  option.is_switch = true;
  option.set = [field](std::string_view text) -> Status {
    STAFFEL_ASSIGN_OR_RETURN(*field, ParseSwitch(text));
    return absl::OkStatus();
  };
}

void OptionList::Text(std::string name, std::string value, std::string* field, std::string help,
                      std::function<Status(std::string_view)> check) {
  Add(std::move(name), std::move(value), *field, std::move(help)).set =
      [field, check = std::move(check)](std::string_view text) -> Status {
    if (check) STAFFEL_RETURN_IF_ERROR(check(text));
    *field = std::string(text);
    return absl::OkStatus();
  };
}

void OptionList::Texts(std::string name, std::string value, std::vector<std::string>* field,
                       std::string help, std::function<Status(std::string_view)> check) {
  std::string initial;
  for (const std::string& text : *field) StrAppend(initial, initial.empty() ? "" : ", ", text);
  Option& option = Add(std::move(name), std::move(value), initial, std::move(help));
  option.repeatable = true;
  option.set = [field, check = std::move(check)](std::string_view text) -> Status {
    if (check) STAFFEL_RETURN_IF_ERROR(check(text));
    field->emplace_back(text);
    return absl::OkStatus();
  };
  option.clear = [field] { field->clear(); };
}

void OptionList::AddChoice(std::string name, std::vector<std::string> words, size_t initial,
                           std::string help, std::function<void(size_t)> assign) {
  std::string all;
  for (const std::string& word : words) StrAppend(all, all.empty() ? "" : "|", word);
  const std::string default_text = words.at(initial);
  Add(std::move(name), all, default_text, std::move(help)).set =
      [words = std::move(words), all, assign = std::move(assign)](std::string_view text) -> Status {
    const auto found = std::find(words.begin(), words.end(), text);
    if (found == words.end()) {
      return absl::InvalidArgumentError(StrCat("is \"", text, "\"; it must be one of ", all));
    }
    assign(static_cast<size_t>(found - words.begin()));
    return absl::OkStatus();
  };
}

void OptionList::Alias(std::string alias) {
  STAFFEL_CHECK(Find(alias) == nullptr) << alias;
  options_.back().alias = std::move(alias);
}

const Option* OptionList::Find(std::string_view name) const {
  for (const Option& option : options_) {
    if (option.name == name || (!option.alias.empty() && option.alias == name)) return &option;
  }
  return nullptr;
}

std::string OptionList::Nearest(std::string_view name) const {
  std::string best;
  // Beyond half of the letters a guess is noise.
  int best_distance = static_cast<int>(name.size()) / 2 + 1;
  for (const Option& option : options_) {
    int distance = EditDistance(name, option.name);
    // A word of the name alone: --model-len for --max-model-len.
    if (name.size() >= 4 && option.name.find(name) != std::string::npos) {
      distance = std::min(distance, 1);
    }
    if (distance < best_distance) {
      best_distance = distance;
      best = option.name;
    }
  }
  return best;
}

std::string OptionList::Help() const {
  constexpr size_t kIndent = 34, kWidth = 100 - kIndent;
  std::string out, group;
  for (const Option& option : options_) {
    if (option.group != group) StrAppend(out, "\n", group = option.group, ":\n");
    std::string left =
        StrCat("  ", option.is_switch ? StrCat("--[no-]", option.name) : option.flag(),
               option.alias.empty() ? "" : StrCat(", --", option.alias),
               option.value.empty() ? "" : " ", option.value);
    std::string text = option.help;
    if (!option.default_text.empty()) StrAppend(text, " [", option.default_text, "]");
    if (left.size() + 2 > kIndent) {
      StrAppend(out, left, "\n");
      left.clear();
    }
    for (const std::string& line : Wrap(text, kWidth)) {
      StrAppend(out, left, std::string(kIndent - left.size(), ' '), line, "\n");
      left.clear();
    }
  }
  return out;
}

std::string OptionList::Markdown() const {
  std::string out, group;
  for (const Option& option : options_) {
    if (option.group != group) {
      StrAppend(
          out, "\n## ", group = option.group, "\n\n",
          "| flag | variable | key in the file | default | meaning |\n|---|---|---|---|---|\n");
    }
    StrAppend(
        out, "| `", option.flag(), option.value.empty() ? "" : " ", EscapeTableCell(option.value),
        "`", option.alias.empty() ? "" : StrCat(", `--", option.alias, "`"),
        option.repeatable ? " (repeatable)" : "", " | `", option.variable(), "` | `", option.key(),
        "` | ", option.default_text.empty() ? "" : StrCat("`", option.default_text, "`"), " | ",
        EscapeTableCell(option.help), " |\n");
  }
  return out;
}

}  // namespace staffel
