// Fills an OptionList from its sources: flags win over environment variables, these over the
// configuration file, and that over the defaults. Whatever is unknown or cannot be parsed is
// InvalidArgument naming the place and the nearest name that exists.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "staffel/status.h"

namespace staffel {

// One value from one place. `option` points into the list.
struct OptionValue {
  const Option* option;
  std::string text;
  std::string place;  // "--port", "STAFFEL_PORT", "server.yaml line 3: port"
};

struct CommandLine {
  std::vector<OptionValue> values;  // in the order of the options
  bool help = false;                // -h or --help is among the arguments
};

// args: without the program's and command's names. `positional`: name of the option that a bare
// argument sets; "": none may be given.
Result<CommandLine> ReadFlags(const OptionList& list, const std::string& positional,
                              std::vector<std::string> args);

// `environment`: NAME=value strings, null-terminated, as in environ(7). Variables that Kubernetes
// makes for a service called "staffel" are passed over, and so are those of the tests
// (STAFFEL_MODELS, STAFFEL_SEED, ...).
Result<std::vector<OptionValue>> ReadEnvironment(const OptionList& list,
                                                 const char* const* environment);

// The key `models` of a configuration file: a list of mappings, each with the options of one model.
struct ModelEntries {
  const OptionList* list = nullptr;
  std::vector<std::vector<OptionValue>> models;  // values point into the list
};

// A YAML mapping of keys to scalars, or to lists of scalars for repeatable options; and `models`,
// if `entries` is given.
Result<std::vector<OptionValue>> ReadConfigFile(const OptionList& list, const std::string& path,
                                                ModelEntries* entries = nullptr);

// Sets the values of one source; its values of a repeatable option replace those set before.
Status Apply(const std::vector<OptionValue>& values);

// All of it. The option "config", if the list has one, names the file. Returns whether help was
// asked for; then nothing has been applied.
Result<bool> LoadOptions(const OptionList& list, const std::string& positional,
                         std::vector<std::string> args, const char* const* environment,
                         ModelEntries* entries = nullptr);

}  // namespace staffel
