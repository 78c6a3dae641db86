#include "app/apis.h"

#include <algorithm>
#include <memory>

#include "app/version.h"
#include "base/strings.h"
#include "server/anthropic/fields.h"
#include "server/anthropic/routes.h"
#include "server/api/openapi.h"
#include "server/kserve/http_routes.h"
#include "server/llama/fields.h"
#include "server/llama/routes.h"
#include "server/ollama/fields.h"
#include "server/ollama/routes.h"
#include "server/openai/fields.h"
#include "server/openai/routes.h"
#include "server/tgi/fields.h"
#include "server/tgi/routes.h"
#include "server/tokenize/routes.h"

namespace staffel {

std::span<const Api> Apis() {
  static constexpr Api kApis[] = {
      {"openai", api::openai::AddRoutes, api::openai::RouteDocs},
      {"anthropic", api::anthropic::AddRoutes, api::anthropic::RouteDocs},
      {"kserve", api::kserve::AddRoutes, api::kserve::RouteDocs},
      {"llama", api::llama::AddRoutes, api::llama::RouteDocs},
      {"ollama", api::ollama::AddRoutes, api::ollama::RouteDocs},
      {"tgi", api::tgi::AddRoutes, api::tgi::RouteDocs},
      {"tokenize", api::tokenize::AddRoutes, api::tokenize::RouteDocs},
  };
  return kApis;
}

std::string ApiNames() {
  std::string names;
  for (const Api& api : Apis()) StrAppend(names, names.empty() ? "" : ", ", api.name);
  return names;
}

Status CheckApi(std::string_view name) {
  const std::span<const Api> apis = Apis();
  if (std::any_of(apis.begin(), apis.end(), [&](const Api& api) { return api.name == name; }))
    return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("is none of ", ApiNames()));
}

void AddApis(const std::vector<std::string>& names, api::Service& service, Router& router) {
  std::vector<api::RouteDoc> docs;
  for (const Api& api : Apis()) {
    if (!names.empty() && std::find(names.begin(), names.end(), api.name) == names.end()) continue;
    api.add_routes(service, router);
    const auto of_api = api.route_docs();
    docs.insert(docs.end(), of_api.begin(), of_api.end());
  }
  // Also while models are loading.
  router.Handle("GET", "/openapi.json",
                [document = api::OpenApiDocument(docs, Version())](
                    HttpRequest, std::shared_ptr<ResponseWriter> writer) {
                  writer->Send(200, "application/json", document);
                });
}

}  // namespace staffel
