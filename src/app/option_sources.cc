#include "app/option_sources.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

#include "base/strings.h"

namespace staffel {
namespace {

template <class... Parts>
Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(StrCat(parts...));
}

// "; did you mean --port?", or where to look.
std::string Suggestion(const OptionList& list, std::string_view name,
                       std::string (Option::*spelling)() const) {
  const std::string nearest = list.Nearest(name);
  if (nearest.empty()) return "; `staffel options` lists all of them";
  return StrCat("; did you mean ", (list.Find(nearest)->*spelling)(), "?");
}

Status UnknownArgument(const OptionList& list, const std::string& argument,
                       const std::string& positional) {
  if (argument.size() > 1 && argument[0] == '-') {
    std::string name = argument.substr(argument.find_first_not_of('-'));
    name = name.substr(0, name.find('='));
    std::replace(name.begin(), name.end(), '_', '-');
    return Invalid("unknown flag ", argument.substr(0, argument.find('=')),
                   Suggestion(list, name, &Option::flag));
  }
  return Invalid("unexpected argument '", argument, "'; ",
                 positional.empty() ? "only flags are taken here"
                                    : StrCat("only one ", positional, " is taken"));
}

// STAFFEL_MAX_MODEL_LEN -> max-model-len.
std::string NameOfVariable(std::string_view variable) {
  std::string name(variable.substr(std::string_view("STAFFEL_").size()));
  for (char& c : name) c = c == '_' ? '-' : static_cast<char>(std::tolower(c));
  return name;
}

// Kubernetes' service links (https://kubernetes.io/docs/concepts/services-networking/service):
// STAFFEL_SERVICE_HOST, STAFFEL_PORT=tcp://..., STAFFEL_PORT_8000_TCP_ADDR, and the same for
// services whose name begins with "staffel-".
bool IsServiceLink(std::string_view name, std::string_view value) {
  if (name.ends_with("_SERVICE_HOST") || name.find("_SERVICE_PORT") != name.npos) return true;
  if (value.starts_with("tcp://") || value.starts_with("udp://")) return true;
  const size_t port = name.find("_PORT_");
  return port != name.npos && port + 6 < name.size() && std::isdigit(name[port + 6]);
}

// Variables of the tests, benchmarks and scripts (tests/README.md).
bool BelongsToTests(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "STAFFEL_MODELS",         "STAFFEL_SEED",   "STAFFEL_BINARY",    "STAFFEL_BUILD",
      "STAFFEL_UPDATE_GOLDENS", "STAFFEL_WORLDS", "STAFFEL_ALL_LEVELS"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace

Result<CommandLine> ReadFlags(const OptionList& list, const std::string& positional,
                              std::vector<std::string> args) {
  CLI::App parser;
  parser.set_help_flag();
  parser.allow_extras();
  CommandLine result;
  parser.add_flag("-h,--help", result.help);
  std::vector<std::vector<std::string>> texts(list.options().size());
  for (size_t i = 0; i < texts.size(); i++) {
    const Option& option = list.options()[i];
    if (option.is_switch) {
      parser.add_flag(StrCat(option.flag(), "{true},--no-", option.name, "{false}"), texts[i])
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    } else {
      const std::string alias = option.alias.empty() ? "" : StrCat(",--", option.alias);
      parser.add_option(option.flag() + alias, texts[i])
          ->allow_extra_args(false)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
  }
  std::vector<std::string> bare;
  if (!positional.empty()) parser.add_option(positional, bare);
  std::reverse(args.begin(), args.end());  // as CLI11 wants it
  try {
    parser.parse(std::move(args));
  } catch (const CLI::ParseError& error) {
    return Invalid(error.what(), "; `--help` explains the flags");
  }
  if (result.help) return result;
  const std::vector<std::string> extras = parser.remaining();
  if (!extras.empty()) return UnknownArgument(list, extras.front(), positional);
  if (bare.size() > 1) return UnknownArgument(list, bare[1], positional);
  for (size_t i = 0; i < texts.size(); i++) {
    const Option& option = list.options()[i];
    for (std::string& text : texts[i]) {
      result.values.push_back({&option, std::move(text), option.flag()});
    }
  }
  for (std::string& text : bare) {
    result.values.push_back({list.Find(positional), std::move(text), positional});
  }
  return result;
}

Result<std::vector<OptionValue>> ReadEnvironment(const OptionList& list,
                                                 const char* const* environment) {
  std::vector<OptionValue> values;
  for (; *environment != nullptr; environment++) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (!entry.starts_with("STAFFEL_") || equals == entry.npos) continue;
    const std::string variable(entry.substr(0, equals));
    const std::string_view value = entry.substr(equals + 1);
    if (BelongsToTests(variable) || IsServiceLink(variable, value)) continue;
    const std::string name = NameOfVariable(variable);
    const Option* option = list.Find(name);
    if (option == nullptr) {
      return Invalid("unknown environment variable ", variable,
                     Suggestion(list, name, &Option::variable));
    }
    values.push_back({option, std::string(value), variable});
  }
  return values;
}

Status Apply(const std::vector<OptionValue>& values) {
  std::vector<const Option*> cleared;
  for (const OptionValue& value : values) {
    if (std::find(cleared.begin(), cleared.end(), value.option) == cleared.end()) {
      value.option->clear();
      cleared.push_back(value.option);
    }
    if (const Status status = value.option->set(value.text); !status.ok()) {
      return Invalid(value.place, " ", std::string(status.message()));
    }
  }
  return absl::OkStatus();
}

Result<bool> LoadOptions(const OptionList& list, const std::string& positional,
                         std::vector<std::string> args, const char* const* environment,
                         ModelEntries* entries) {
  STAFFEL_ASSIGN_OR_RETURN(const CommandLine flags, ReadFlags(list, positional, std::move(args)));
  if (flags.help) return true;
  STAFFEL_ASSIGN_OR_RETURN(const std::vector<OptionValue> variables,
                           ReadEnvironment(list, environment));
  std::string config;
  for (const auto* source : {&variables, &flags.values}) {
    for (const OptionValue& value : *source) {
      if (value.option->name == "config") config = value.text;
    }
  }
  if (!config.empty()) {
    STAFFEL_ASSIGN_OR_RETURN(const std::vector<OptionValue> keys,
                             ReadConfigFile(list, config, entries));
    STAFFEL_RETURN_IF_ERROR(Apply(keys));
  }
  STAFFEL_RETURN_IF_ERROR(Apply(variables));
  STAFFEL_RETURN_IF_ERROR(Apply(flags.values));
  return false;
}

}  // namespace staffel
