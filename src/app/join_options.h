// What masters and workers are told alike about joining: the token, and labels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "staffel/status.h"

namespace staffel {

// The first line of --token-file becomes `token`; nothing happens if `path` is empty.
// InvalidArgument: --token is given too, or the file cannot be read or begins with an empty line.
Status ReadTokenFile(const std::string& path, std::string* token);

// Of texts KEY=VALUE; the value may hold further signs.
std::map<std::string, std::string> ParseLabels(const std::vector<std::string>& texts);

}  // namespace staffel
