#include "server/api/api_error.h"

#include "base/strings.h"

namespace staffel::api {

ApiError WithClientNames(ApiError error, std::span<const ClientName> names) {
  // One replacement each: a client's name may be OpenAI's of another field.
  for (const ClientName& name : names) {
    if (error.param != name.openai) continue;
    error.param = std::string(name.client);
    break;
  }
  for (const ClientName& name : names) {
    const std::string quoted = StrCat("'", name.openai, "'");
    const size_t at = error.message.find(quoted);
    if (at == std::string::npos) continue;
    error.message.replace(at, quoted.size(), StrCat("'", name.client, "'"));
    break;
  }
  return error;
}

}  // namespace staffel::api
