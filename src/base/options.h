// The one list of a command's options. Each entry names an option once; flags, environment
// variables, keys of the configuration file, --help and docs/configuration.md are made from it.
//
//   option "max-model-len":  flag --max-model-len, variable STAFFEL_MAX_MODEL_LEN, key
//   max_model_len
//
// Reading arguments and files is not done here but in src/app. An OptionList writes into the
// variables it was given and lives no longer than they; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "staffel/clock.h"
#include "staffel/status.h"

namespace staffel {

struct Option {
  std::string name;   // lower case, words joined by '-'
  std::string alias;  // a second, shorter name; "": none
  std::string group;
  std::string value;  // what stands for the value in help: "TOKENS", "FILE"; "" for switches
  std::string default_text;
  std::string help;
  bool is_switch = false;
  bool repeatable = false;  // each use adds a value
  // Takes a value; the error has no subject ("is 7; it must be ...").
  std::function<Status(std::string_view)> set;
  // Drops the values of a weaker source before the first of a stronger one (repeatable only).
  std::function<void()> clear;

  std::string flag() const { return "--" + name; }
  std::string variable() const;  // STAFFEL_...
  std::string key() const;       // words joined by '_'
};

class OptionList {
 public:
  // Options added from now on belong to this group of help and documentation.
  void BeginGroup(std::string name) { group_ = std::move(name); }

  // The field's value at the time of the call is the default. `value` and `unit`: see Option.
  // Where zero has a meaning, the word "auto" stands for it too.
  void Integer(std::string name, std::string value, int* field, int min, int max, std::string help,
               std::string zero_means = "");
  void Bytes(std::string name, int64_t* field, int64_t min, int64_t max, std::string help,
             std::string zero_means = "");
  void Time(std::string name, Duration* field, Duration min, Duration max, std::string help,
            std::string zero_means = "");
  void Switch(std::string name, bool* field, std::string help);
  // Any text; `check` may refuse it.
  void Text(std::string name, std::string value, std::string* field, std::string help,
            std::function<Status(std::string_view)> check = nullptr);
  void Texts(std::string name, std::string value, std::vector<std::string>* field, std::string help,
             std::function<Status(std::string_view)> check = nullptr);
  // One of a few words; field is the index.
  template <class Enum>
  void Choice(std::string name, Enum* field, std::vector<std::string> words, std::string help) {
    AddChoice(std::move(name), std::move(words), static_cast<size_t>(*field), std::move(help),
              [field](size_t index) { *field = static_cast<Enum>(index); });
  }

  // A second name for the option added last.
  void Alias(std::string alias);

  const std::vector<Option>& options() const { return options_; }
  // Null: no option of that name or alias.
  const Option* Find(std::string_view name) const;
  // The name most like `name`, for "did you mean"; "" if none is near.
  std::string Nearest(std::string_view name) const;

  // Lines of --help, by group.
  std::string Help() const;
  // Tables of docs/configuration.md, by group.
  std::string Markdown() const;

 private:
  Option& Add(std::string name, std::string value, std::string default_text, std::string help);
  void AddChoice(std::string name, std::vector<std::string> words, size_t initial, std::string help,
                 std::function<void(size_t)> assign);

  std::string group_;
  std::vector<Option> options_;
};

}  // namespace staffel
