// What is answered to whom: routes, operations routes, errors, request ids, availability.
#include <nlohmann/json.hpp>

#include "server/http_error.h"
#include "tests/api/http_fixture.h"

namespace staffel {
namespace {

// The error object of an answer, after checking its shape.
nlohmann::json ErrorOfBody(const RawResponse& response) {
  EXPECT_EQ(response.header("content-type"), "application/json");
  nlohmann::json error = nlohmann::json::parse(response.body).at("error");
  EXPECT_TRUE(error.at("message").is_string() && !error["message"].empty());
  EXPECT_TRUE(error.at("type").is_string());
  EXPECT_TRUE(error.at("param").is_null() || error["param"].is_string());
  EXPECT_TRUE(error.at("code").is_null() || error["code"].is_string());
  EXPECT_FALSE(response.header("x-request-id").empty());
  return error;
}

TEST(HttpRoutes, HandlersGetTheRequestAndAnswer) {
  TestServer t;
  RawResponse hello = t.Ask(Request("GET", "/hello?x=%20&y"));
  EXPECT_EQ(hello.status, 200);
  EXPECT_EQ(hello.body, "hello");
  EXPECT_EQ(hello.header("content-length"), "5");
  EXPECT_EQ(t.Ask(Request("POST", "/echo", "some body")).body, "some body");

  RawClient client = t.Connect();
  client.Send(Request("POST", "/hold?a=1&b=%41", "body", "X-Odd-Name:  value \r\n"));
  HeldRequest held = t.held.Take();
  EXPECT_EQ(held.request.method, "POST");
  EXPECT_EQ(held.request.path, "/hold");
  EXPECT_EQ(held.request.query, "a=1&b=%41");
  EXPECT_EQ(held.request.header("x-odd-name"), "value");
  EXPECT_EQ(held.request.body, "body");
  held.writer->Send(202, "text/plain", "done", {{"X-More", "yes\r\nX-Injected: no"}});
  RawResponse response = client.Read();
  EXPECT_EQ(response.status, 202);
  EXPECT_EQ(response.header("x-more"), "yes  X-Injected: no");
  EXPECT_EQ(response.header("x-request-id"), held.request.request_id);
}

TEST(HttpRoutes, PathsMatchByteForByte) {
  TestServer t;
  for (const char* target :
       {"//hello", "/hello/", "/x/../hello", "/./hello", "/Hello", "/hell%6f", "/%2fhello",
        "/hello;x", "/", "/models", "/models/", "/models/%zz", "/models/a%00b", "*"}) {
    RawResponse response = t.Ask(Request("GET", target));
    EXPECT_EQ(response.status, 404) << target;
    EXPECT_EQ(ErrorOfBody(response)["code"], "unknown_url") << target;
  }
  EXPECT_EQ(t.Ask(Request("GET", "http://other:80/hello")).body, "hello");
  EXPECT_EQ(t.Ask(Request("GET", "HTTPS://other/hello?x")).body, "hello");
  EXPECT_EQ(t.Ask(Request("GET", "/models/org%2Fname/x")).body, "/models/org/name/x");
  for (const char* target : {"hello", "ftp://x/hello", "http:///hello", "/hello#x", "x:80"}) {
    RawResponse response = t.Ask(Request("GET", target));
    EXPECT_EQ(response.status, 400) << target;
    ErrorOfBody(response);
  }
}

TEST(HttpRoutes, WrongMethodIs405WithAllow) {
  TestServer t;
  for (auto [method, target, allow] : {std::tuple{"POST", "/hello", "GET, HEAD"},
                                       {"GET", "/echo", "POST"},
                                       {"HEAD", "/echo", "POST"},
                                       {"OPTIONS", "/echo", "POST"},
                                       {"get", "/hello", "GET, HEAD"},
                                       {"DELETE", "/models/x", "GET, HEAD"},
                                       {"POST", "/health", "GET, HEAD"}}) {
    RawResponse response = t.Ask(Request(method, target), std::string(method) == "HEAD");
    EXPECT_EQ(response.status, 405) << method << target;
    EXPECT_EQ(response.header("allow"), allow) << method << target;
    if (std::string(method) == "HEAD") continue;
    EXPECT_EQ(ErrorOfBody(response)["code"], "method_not_allowed");
  }
}

TEST(HttpRoutes, ErrorsHaveTheShapeOfTheirPath) {
  HttpServerOptions options = LocalOptions();
  options.api_keys = {"secret"};
  options.limits.body_bytes_max = 10;
  TestServer t(std::move(options));
  t.server.ShapeErrors("/echo", [](const HttpError& e) { return "echo " + e.message; });
  t.server.ShapeErrors("/a/*", [](const HttpError& e) { return "a " + e.message; });
  t.server.ShapeErrors("/a/b/*", [](const HttpError& e) { return "b " + e.message; });
  t.server.ShapeErrors("/drop", [](const HttpError& e) { return "drop " + e.message; });
  const std::string key = "Authorization: Bearer secret\r\n";
  const auto ask = [&](int status, const std::string& request) {
    RawResponse response = t.Ask(request);
    EXPECT_EQ(response.status, status) << request;
    EXPECT_EQ(response.header("content-type"), "application/json");
    return response.body.substr(0, response.body.find(' '));
  };
  EXPECT_EQ(ask(401, Request("POST", "/echo")), "echo");
  EXPECT_EQ(ask(405, Request("GET", "/echo?x", "", key)), "echo");
  EXPECT_EQ(ask(413, Request("POST", "/echo", "12345678901", key)), "echo");
  EXPECT_EQ(ask(417, Request("POST", "/echo", "", key + "Expect: wonders\r\n")), "echo");
  EXPECT_EQ(ask(404, Request("GET", "/a/x", "", key)), "a");
  EXPECT_EQ(ask(404, Request("GET", "/a/", "", key)), "a");
  EXPECT_EQ(ask(401, Request("GET", "/a/b/c/d")), "b");
  EXPECT_EQ(ask(404, Request("GET", "/a/bc", "", key)), "a");
  EXPECT_EQ(ask(500, Request("POST", "/drop", "", key)), "drop") << "a handler that drops it";
  for (const char* other : {"/echo/", "/a", "/", "/x/a/b", "/Echo"}) {
    RawResponse response = t.Ask(Request("GET", other, "", key));
    EXPECT_EQ(response.status, 404);
    ErrorOfBody(response);
  }
  t.server.SetUnavailable("loading");
  EXPECT_EQ(ask(503, Request("POST", "/echo", "", key)), "echo");
}

TEST(HttpRoutes, HeadHasTheLengthAndNoBody) {
  TestServer t;
  RawClient client = t.Connect();
  RawResponse head = client.Send(Request("HEAD", "/hello")).Read(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("content-length"), "5");
  EXPECT_EQ(client.Send(Request("GET", "/hello")).Read().body, "hello");
}

TEST(HttpRoutes, RequestIdsAreEchoedWhenSafe) {
  TestServer t;
  auto id = [&](std::string_view value) {
    return t.Ask(Request("GET", "/hello", "", "X-Request-Id: " + std::string(value) + "\r\n"))
        .header("x-request-id");
  };
  EXPECT_EQ(id("abc-1.2_3:4"), "abc-1.2_3:4");
  EXPECT_EQ(id(std::string(128, 'a')), std::string(128, 'a'));
  for (std::string_view bad : {"", "a b", "../../x", "a\"b", "\xc3\xa9"}) {
    EXPECT_TRUE(id(bad).starts_with("req-")) << bad;
  }
  EXPECT_TRUE(id(std::string(129, 'a')).starts_with("req-"));
  EXPECT_NE(id(""), id(""));
}

TEST(HttpRoutes, DroppedAndThrowingHandlersAnswer500) {
  TestServer t;
  for (const char* path : {"/drop", "/throw"}) {
    RawResponse response = t.Ask(Request("POST", path, "x"));
    EXPECT_EQ(response.status, 500) << path;
    EXPECT_EQ(ErrorOfBody(response)["type"], "server_error");
    EXPECT_EQ(response.body.find("secret detail"), std::string::npos);
  }
}

TEST(HttpRoutes, OnlyTheFirstAnswerCounts) {
  TestServer t;
  RawClient client = t.Connect();
  client.Send(Request("POST", "/hold"));
  HeldRequest held = t.held.Take();
  held.writer->Send(200, "text/plain", "one");
  held.writer->Send(200, "text/plain", "two");
  held.writer->BeginStream();
  EXPECT_FALSE(held.writer->WriteEvent("x"));
  held.writer->EndStream();
  EXPECT_EQ(client.Read().body, "one");
  EXPECT_EQ(client.Send(Request("GET", "/hello")).Read().body, "hello");
}

TEST(HttpRoutes, RetryAfterIsAddedTo429And503) {
  TestServer t;
  for (auto [status, given, want] : {std::tuple{429, "", "1"}, {503, "", "1"}, {429, "7", "7"}}) {
    RawClient client = t.Connect();
    client.Send(Request("POST", "/hold"));
    HttpHeaders headers;
    if (*given) headers.emplace_back("retry-after", given);
    t.held.Take().writer->Send(status, "application/json", "{}", headers);
    RawResponse response = client.Read();
    EXPECT_EQ(response.header("retry-after"), want);
    EXPECT_EQ(response.headers.count("retry-after"), 1u);
  }
}

TEST(HttpRoutes, UnavailableUntilTheModelIsThere) {
  TestServer t(LocalOptions(), 1, /*available=*/false);
  t.server.SetUnavailable("The model is loading.");
  for (const std::string& request :
       {Request("POST", "/echo", "x"), Request("GET", "/nope"), Request("GET", "/health")}) {
    RawResponse response = t.Ask(request);
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(ErrorOfBody(response)["message"], "The model is loading.");
    EXPECT_FALSE(response.header("retry-after").empty());
  }
  EXPECT_EQ(t.Ask(Request("GET", "/live")).status, 200);
  EXPECT_EQ(t.Ask(Request("GET", "/version")).body, R"({"version":"1.2.3"})");

  Status health;
  std::mutex mutex;
  t.server.SetAvailable([&] {
    std::lock_guard lock(mutex);
    return health;
  });
  EXPECT_EQ(t.Ask(Request("GET", "/health")).body, R"({"status":"ok"})");
  EXPECT_EQ(t.Ask(Request("POST", "/echo", "x")).status, 200);
  {
    std::lock_guard lock(mutex);
    health = absl::UnavailableError("A worker is lost.");
  }
  RawResponse ill = t.Ask(Request("GET", "/health"));
  EXPECT_EQ(ill.status, 503);
  EXPECT_EQ(ErrorOfBody(ill)["message"], "A worker is lost.");
  EXPECT_FALSE(ill.header("retry-after").empty());
  EXPECT_EQ(t.Ask(Request("GET", "/live")).status, 200);
  t.server.SetAvailable(nullptr, [] { return std::string("1 of 2"); });
  EXPECT_EQ(t.Ask(Request("GET", "/health")).body, R"({"degraded":"1 of 2","status":"ok"})");
}

}  // namespace
}  // namespace staffel
