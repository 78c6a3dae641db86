// Requests as the HTTP layer sees them after the parser: a target line, then "name: value" lines.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/auth.h"
#include "server/http_cors.h"
#include "server/http_message.h"
#include "server/http_router.h"

namespace staffel {
namespace {

constexpr std::string_view kKey = "secret";

void CheckKeys(const HttpHeaders& headers) {
  static const ApiKeys keys = *ApiKeys::Make({std::string(kKey)});
  if (!keys.Admits(headers)) return;
  bool shown = false;
  for (const auto& [name, value] : headers) shown |= value.ends_with(kKey);
  STAFFEL_CHECK(shown) << "let in without the key";
}

void CheckRoutes(std::string_view path) {
  static const RouteTable* table = [] {
    auto* made = new RouteTable;
    made->Handle("GET", "/v1/models", [](HttpRequest, std::shared_ptr<ResponseWriter>) {});
    made->Handle("GET", "/v1/models/*", [](HttpRequest, std::shared_ptr<ResponseWriter>) {});
    return made;
  }();
  RouteMatch match = table->Find("GET", path);
  if (match.route == "/v1/models") STAFFEL_CHECK(path == match.route);
  if (match.handler) STAFFEL_CHECK(path.starts_with("/v1/models"));
  STAFFEL_CHECK(match.path.find('\0') == std::string::npos || !match.handler);
}

// A head that we write has one line for each header, whatever is in the values.
void CheckHeadOf(const HttpHeaders& headers) {
  HttpHeaders sent;
  for (const auto& [name, value] : headers) sent.emplace_back("X-Copy", value);
  std::string head = FormatHead(200, sent);
  size_t lines = 0;
  for (size_t at = 0; (at = head.find('\n', at)) != std::string::npos; at++) lines++;
  STAFFEL_CHECK_EQ(lines, sent.size() + 2);
  STAFFEL_CHECK(head.ends_with("\r\n\r\n"));
}

// An event is data lines and one empty line at its end, whatever is in the data.
void CheckEvent(std::string_view data) {
  std::string event;
  AppendEvent(event, data);
  STAFFEL_CHECK(event.ends_with("\n\n"));
  std::string_view rest(event);
  rest.remove_suffix(1);
  while (!rest.empty()) {
    STAFFEL_CHECK(rest.starts_with("data: "));
    STAFFEL_CHECK(rest.find('\r') == std::string_view::npos);
    rest.remove_prefix(rest.find('\n') + 1);
  }
}

}  // namespace
}  // namespace staffel

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace staffel;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  RequestHead head;
  head.version = size % 2 ? 11 : 10;
  while (end != std::string_view::npos) {
    text.remove_prefix(end + 1);
    end = text.find('\n');
    std::string_view header = text.substr(0, end);
    size_t colon = header.find(": ");
    if (colon == std::string_view::npos) continue;
    head.headers.emplace_back(header.substr(0, colon), header.substr(colon + 2));
  }
  if (auto target = ParseTarget(line)) {
    STAFFEL_CHECK(target->path == "*" || target->path.starts_with('/'));
    STAFFEL_CHECK(target->path.find_first_of("?#") == std::string::npos);
    CheckRoutes(target->path);
  }
  if (auto decoded = PercentDecode(line)) STAFFEL_CHECK(decoded->size() <= line.size());
  HasHttpVersion(line);
  CheckHead(head);
  CheckKeys(head.headers);
  CheckHeadOf(head.headers);
  CheckEvent(text);
  CheckEvent(line);
  std::string id = RequestIdFor(line);
  STAFFEL_CHECK(!id.empty() && id.size() <= 128);
  PreflightHeaders({"https://a.example"}, "OPTIONS", head.headers);
  return 0;
}
