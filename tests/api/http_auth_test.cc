// Keys and cross-origin requests: deny by default.
#include <nlohmann/json.hpp>

#include "tests/api/http_fixture.h"

namespace staffel {
namespace {

HttpServerOptions WithKeys(std::vector<std::string> keys) {
  HttpServerOptions options = LocalOptions();
  options.api_keys = std::move(keys);
  return options;
}

TEST(HttpAuth, EveryRouteButTheOpenListNeedsAKey) {
  TestServer t(WithKeys({"secret"}));
  for (const char* method : {"GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "get", "BREW"}) {
    for (const char* target : {"/hello",
                               "/echo",
                               "/models/x",
                               "//hello",
                               "/hello/",
                               "/x/../hello",
                               "/Hello",
                               "/%68ello",
                               "/version",
                               "/nope",
                               "/",
                               "*",
                               "/live/",
                               "/health/../hello",
                               "/Metrics",
                               "/health?x=/hello",
                               "http://test/hello",
                               "no-path",
                               "/live",
                               "/health",
                               "/metrics",
                               "http://test/health"}) {
      std::string path = target;
      bool reads = std::string_view(method) == "GET" || std::string_view(method) == "HEAD";
      bool open = reads && (path == "/live" || path == "/health" || path == "/metrics" ||
                            path == "/health?x=/hello" || path == "http://test/health");
      RawResponse response = t.Ask(Request(method, target), std::string_view(method) == "HEAD");
      EXPECT_EQ(response.status, open ? 200 : 401) << method << " " << target;
      if (open) continue;
      EXPECT_EQ(response.header("www-authenticate"), "Bearer");
      EXPECT_NE(response.header("x-request-id"), "");
      if (std::string_view(method) == "HEAD") continue;
      EXPECT_EQ(nlohmann::json::parse(response.body)["error"]["code"], "invalid_api_key");
    }
  }
  EXPECT_TRUE(t.held.empty());
}

TEST(HttpAuth, KeyTable) {
  TestServer t(WithKeys({"other", "secret", "sch\xc3\xbcssel"}));
  const std::vector<std::pair<int, std::string>> kCases = {
      {200, "Authorization: Bearer secret"},
      {200, "authorization: bearer other"},
      {200, "AUTHORIZATION:BEARER secret"},
      {200, "Authorization:  Bearer   secret  "},
      {200, "Authorization: Bearer sch\xc3\xbcssel"},
      {200, "X-Api-Key: secret"},
      {200, "Authorization: Bearer secret\r\nX-Api-Key: wrong"},
      {401, "X-No: x"},
      {401, "Authorization: "},
      {401, "Authorization: Bearer"},
      {401, "Authorization: Bearer "},
      {401, "Authorization: secret"},
      {401, "Authorization: Bearersecret"},
      {401, "Authorization: Bearer secre"},
      {401, "Authorization: Bearer secret2"},
      {401, "Authorization: Bearer Secret"},
      {401, "Authorization: Bearer secr\xe9t"},
      {401, "Authorization: Bearer sch\xfcssel"},
      {401, "Authorization: Bearer secret secret"},
      {401, "Authorization: Bearer secret, other"},
      {401, "Authorization: Bearer \"secret\""},
      {401, "Authorization: Basic c2VjcmV0"},
      {401, "Authorization: Basic secret"},
      {401, "Authorization: Bearer wrong\r\nAuthorization: Bearer secret"},
      {401, "Authorization: Bearer secret\r\nAuthorization: Bearer secret"},
      {401, "Authorization: Bearer wrong\r\nX-Api-Key: secret"},
      {401, "Authorization:\r\nX-Api-Key: secret"},
      {401, "X-Api-Key: wrong"},
      {401, "X-Api-Key: "},
      {401, "X-Api-Key: secret\r\nX-Api-Key: secret"},
      {401, "Api-Key: secret"},
      {401, "Cookie: Authorization=secret"},
  };
  for (const auto& [status, headers] : kCases) {
    EXPECT_EQ(t.Ask(Request("GET", "/hello", "", headers + "\r\n")).status, status) << headers;
  }
  EXPECT_EQ(t.Ask(Request("GET", "/hello?api_key=secret")).status, 401);
  EXPECT_EQ(t.Ask(Request("GET", "/nope", "", "X-Api-Key: secret\r\n")).status, 404);
}

TEST(HttpAuth, ComesBeforeBodies) {
  TestServer t(WithKeys({"secret"}));
  RawClient client = t.Connect();
  client.Send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 1073741824\r\n\r\n");
  EXPECT_EQ(client.Read().status, 401);
  EXPECT_TRUE(client.AtEnd());
  EXPECT_EQ(t.Ask("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n"
                  "Expect: 100-continue\r\n\r\n")
                .status,
            401);
}

TEST(HttpAuth, AlsoWhileUnavailable) {
  TestServer t(WithKeys({"secret"}), 1, /*available=*/false);
  EXPECT_EQ(t.Ask(Request("GET", "/hello")).status, 401);
  EXPECT_EQ(t.Ask(Request("GET", "/hello", "", "X-Api-Key: secret\r\n")).status, 503);
  EXPECT_EQ(t.Ask(Request("GET", "/health")).status, 503);
}

TEST(HttpAuth, MetricsCanBeClosed) {
  HttpServerOptions options = WithKeys({"secret"});
  options.open_metrics = false;
  TestServer t(options);
  EXPECT_EQ(t.Ask(Request("GET", "/metrics")).status, 401);
  EXPECT_EQ(t.Ask(Request("GET", "/metrics", "", "X-Api-Key: secret\r\n")).status, 200);
}

TEST(HttpAuth, KeysThatNoClientCanSendAreRefused) {
  for (const char* key : {"", "a b", " a", "a\n", "a\tb", "\x7f"}) {
    HttpServer server(WithKeys({"good", key}), nullptr);
    EXPECT_EQ(server.Bind().code(), absl::StatusCode::kInvalidArgument) << key;
  }
}

TEST(HttpCors, OffUnlessConfigured) {
  TestServer t;
  RawResponse response = t.Ask(Request("GET", "/hello", "", "Origin: https://a.example\r\n"));
  EXPECT_EQ(response.header("access-control-allow-origin"), "");
  EXPECT_EQ(t.Ask(Request("OPTIONS", "/hello", "",
                          "Origin: https://a.example\r\nAccess-Control-Request-Method: GET\r\n"))
                .status,
            405);
}

TEST(HttpCors, ConfiguredOrigins) {
  HttpServerOptions options = WithKeys({"secret"});
  options.cors_origins = {"https://a.example", "http://localhost:3000"};
  TestServer t(options);
  auto preflight = [&](std::string_view origin) {
    return t.Ask(
        Request("OPTIONS", "/echo", "",
                std::string("Origin: ")
                    .append(origin)
                    .append("\r\nAccess-Control-Request-Method: POST\r\n"
                            "Access-Control-Request-Headers: authorization,content-type\r\n")));
  };
  RawResponse allowed = preflight("https://a.example");
  EXPECT_EQ(allowed.status, 204);
  EXPECT_EQ(allowed.body, "");
  EXPECT_EQ(allowed.headers.count("content-length"), 0u);
  EXPECT_EQ(allowed.header("access-control-allow-origin"), "https://a.example");
  EXPECT_EQ(allowed.header("access-control-allow-headers"), "authorization,content-type");
  EXPECT_NE(allowed.header("access-control-allow-methods").find("POST"), std::string::npos);
  EXPECT_EQ(allowed.header("vary"), "Origin");
  for (const char* origin : {"https://b.example", "https://a.example.evil", "null", ""}) {
    EXPECT_EQ(preflight(origin).status, 401) << origin;
    EXPECT_EQ(preflight(origin).header("access-control-allow-origin"), "") << origin;
  }
  // The answer itself, errors included, can be read by the page.
  for (const char* key : {"X-Api-Key: secret\r\n", ""}) {
    RawResponse response =
        t.Ask(Request("GET", "/hello", "", std::string("Origin: http://localhost:3000\r\n") + key));
    EXPECT_EQ(response.status, *key ? 200 : 401);
    EXPECT_EQ(response.header("access-control-allow-origin"), "http://localhost:3000");
  }
}

TEST(HttpCors, AnyOrigin) {
  HttpServerOptions options = LocalOptions();
  options.cors_origins = {"*"};
  TestServer t(options);
  RawResponse response = t.Ask(Request("GET", "/hello", "", "Origin: https://a.example\r\n"));
  EXPECT_EQ(response.header("access-control-allow-origin"), "*");
  EXPECT_EQ(t.Ask(Request("GET", "/hello")).header("access-control-allow-origin"), "");
}

}  // namespace
}  // namespace staffel
