#include "app/join_options.h"

#include <fstream>

#include "absl/strings/ascii.h"
#include "base/strings.h"

namespace staffel {

Status ReadTokenFile(const std::string& path, std::string* token) {
  if (path.empty()) return absl::OkStatus();
  if (!token->empty()) {
    return absl::InvalidArgumentError("--token and --token-file both give it; use one of them");
  }
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) {
    return absl::InvalidArgumentError(
        StrCat("--token-file: '", path, "' cannot be read; check its path and rights"));
  }
  *token = std::string(absl::StripAsciiWhitespace(line));
  if (!token->empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("--token-file: the first line of '", path, "' is empty"));
}

std::map<std::string, std::string> ParseLabels(const std::vector<std::string>& texts) {
  std::map<std::string, std::string> labels;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    labels[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return labels;
}

}  // namespace staffel
