// The configuration file: YAML, read with yaml-cpp.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "app/option_sources.h"
#include "base/strings.h"

namespace staffel {
namespace {

// Far above any real file; bounds what a wrong path can cost.
constexpr size_t kFileBytesMax = 1 << 20;

template <class... Parts>
Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(StrCat(parts...));
}

Result<std::string> ReadText(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Invalid("the configuration file '", path, "' is a folder");
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return Invalid("the configuration file '", path, "' cannot be read: ", std::strerror(errno));
  }
  std::string text(kFileBytesMax + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kFileBytesMax) {
    return Invalid("the configuration file '", path, "' is larger than ", kFileBytesMax, " bytes");
  }
  return text;
}

Status AddKey(const OptionList& list, const std::string& path, const YAML::Node& key,
              const YAML::Node& value, std::vector<OptionValue>* values) {
  const std::string where = StrCat(path, " line ", key.Mark().line + 1, ": ");
  if (!key.IsScalar()) return Invalid(where, "a key must be a word");
  const std::string written = key.Scalar();
  std::string name = written;
  std::replace(name.begin(), name.end(), '_', '-');
  const Option* option = list.Find(name);
  if (option == nullptr || name == "config") {
    const std::string nearest = list.Nearest(name);
    return Invalid(where, "unknown key '", written, "'",
                   nearest.empty() ? "; `staffel options` lists all of them"
                                   : StrCat("; did you mean '", list.Find(nearest)->key(), "'?"));
  }
  const std::string place = where + written;
  for (const OptionValue& earlier : *values) {
    if (earlier.option == option) return Invalid(where, "the key '", written, "' stands twice");
  }
  if (value.IsScalar()) {
    values->push_back({option, value.Scalar(), place});
    return absl::OkStatus();
  }
  if (value.IsSequence() && option->repeatable) {
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) return Invalid(place, " must be a list of plain values");
      values->push_back({option, item.Scalar(), place});
    }
    return absl::OkStatus();
  }
  return Invalid(place, option->repeatable ? " must be a value or a list of values"
                                           : " must be a single value");
}

Status AddModels(const std::string& path, const YAML::Node& list, ModelEntries* entries) {
  if (!list.IsSequence()) {
    return Invalid(path, " line ", list.Mark().line + 1, ": 'models' must be a list of mappings");
  }
  for (const YAML::Node& model : list) {
    if (!model.IsMap()) {
      return Invalid(path, " line ", model.Mark().line + 1,
                     ": each of 'models' must be a mapping, such as `- model: a.gguf`");
    }
    std::vector<OptionValue>& values = entries->models.emplace_back();
    for (const auto& entry : model) {
      STAFFEL_RETURN_IF_ERROR(AddKey(*entries->list, path, entry.first, entry.second, &values));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Result<std::vector<OptionValue>> ReadConfigFile(const OptionList& list, const std::string& path,
                                                ModelEntries* entries) {
  STAFFEL_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  std::vector<OptionValue> values;
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return values;
    if (!root.IsMap()) return Invalid(path, " must hold `key: value` lines");
    for (const auto& entry : root) {
      if (entries != nullptr && entry.first.IsScalar() && entry.first.Scalar() == "models") {
        STAFFEL_RETURN_IF_ERROR(AddModels(path, entry.second, entries));
        continue;
      }
      STAFFEL_RETURN_IF_ERROR(AddKey(list, path, entry.first, entry.second, &values));
    }
  } catch (const YAML::Exception& error) {
    return Invalid(path, " line ", error.mark.line + 1, " is not valid YAML: ", error.msg);
  }
  return values;
}

}  // namespace staffel
