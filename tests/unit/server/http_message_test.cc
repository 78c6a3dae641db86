#include "server/http_message.h"

#include "gtest/gtest.h"
#include "server/http_cors.h"
#include "server/http_router.h"

namespace staffel {
namespace {

TEST(ParseTarget, Forms) {
  auto parse = [](std::string_view text) {
    auto target = ParseTarget(text);
    return target ? target->path + "|" + target->query : "none";
  };
  EXPECT_EQ(parse("/"), "/|");
  EXPECT_EQ(parse("/a//b/../%41?x=1?y"), "/a//b/../%41|x=1?y");
  EXPECT_EQ(parse("/a?"), "/a|");
  EXPECT_EQ(parse("http://h/a?b"), "/a|b");
  EXPECT_EQ(parse("HTTPS://h:1"), "/|");
  EXPECT_EQ(parse("http://h?q"), "/|q");
  EXPECT_EQ(parse("http://user@[::1]:80//a"), "//a|");
  EXPECT_EQ(parse("*"), "*|");
  for (const char* bad : {"", "a", "?a", "h:80", "ftp://h/a", "http:/a", "http:///a", "http://h#a",
                          "/a#b", "/a?b#c", "http//h/a"}) {
    EXPECT_EQ(parse(bad), "none") << bad;
  }
}

TEST(PercentDecode, WholeEscapesOnly) {
  EXPECT_EQ(PercentDecode("a%2fb%2Fc+%20"), "a/b/c+ ");
  EXPECT_EQ(PercentDecode("%c3%A9"), "\xc3\xa9");
  EXPECT_EQ(PercentDecode(""), "");
  for (const char* bad : {"%", "%1", "a%", "%g0", "%0g", "%%20", "%00"}) {
    EXPECT_EQ(PercentDecode(bad), std::nullopt) << bad;
  }
}

TEST(CheckHead, StatusOfEachFault) {
  auto status = [](int version, HttpHeaders headers) {
    auto error = CheckHead({version, std::move(headers)});
    return error ? error->status : 200;
  };
  EXPECT_EQ(status(11, {{"host", "h"}}), 200);
  EXPECT_EQ(status(11, {{"host", ""}}), 200);
  EXPECT_EQ(status(11, {}), 400);
  EXPECT_EQ(status(10, {}), 200);
  EXPECT_EQ(status(10, {{"host", "a"}, {"host", "b"}}), 400);
  EXPECT_EQ(status(11, {{"host", "h"}, {"content-length", "007"}}), 200);
  for (const char* length : {"", "-1", "+5", "5, 5", "5;", "0x5", "5 "}) {
    EXPECT_EQ(status(11, {{"host", "h"}, {"content-length", length}}), 400) << length;
  }
  EXPECT_EQ(status(11, {{"host", "h"}, {"transfer-encoding", "Chunked"}}), 200);
  EXPECT_EQ(status(11, {{"host", "h"}, {"transfer-encoding", "chunked, chunked"}}), 501);
  EXPECT_EQ(status(11, {{"host", "h"}, {"transfer-encoding", "xchunked"}}), 501);
  EXPECT_EQ(status(10, {{"transfer-encoding", "chunked"}}), 400);
  EXPECT_EQ(status(11, {{"host", "h"}, {"transfer-encoding", "chunked"}, {"content-length", "1"}}),
            400);
  EXPECT_EQ(status(11, {{"host", "h"}, {"expect", "100-Continue"}}), 200);
  EXPECT_EQ(status(11, {{"host", "h"}, {"expect", "200-ok"}}), 417);
}

TEST(HasHttpVersion, OnlyWellFormedOnes) {
  EXPECT_TRUE(HasHttpVersion("GET / HTTP/2.0"));
  EXPECT_TRUE(HasHttpVersion("PRI * HTTP/2.0"));
  for (const char* bad : {"", "HTTP/2.0", "GET / HTTP/2", "GET / HTTP/a.0", "GET / http/2.0",
                          "GET / HTTP/2.0 ", "GET /HTTP/2.0"}) {
    EXPECT_FALSE(HasHttpVersion(bad)) << bad;
  }
}

TEST(HttpDate, IsTheFixedFormat) {
  EXPECT_EQ(HttpDate(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(HttpDate(0), "Thu, 01 Jan 1970 00:00:00 GMT");
}

TEST(FormatHead, AValueCannotEndItsLine) {
  EXPECT_EQ(FormatHead(404, {{"A", "x\r\nB: y"}, {"C", "\xc3\xa9"}}),
            "HTTP/1.1 404 Not Found\r\nA: x  B: y\r\nC: \xc3\xa9\r\n\r\n");
  EXPECT_EQ(FormatHead(299, {}), "HTTP/1.1 299 OK\r\n\r\n");
  EXPECT_EQ(FormatHead(599, {}), "HTTP/1.1 599 Server Error\r\n\r\n");
}

TEST(AppendEvent, OneDataLineForEachLine) {
  auto event = [](std::string_view data) {
    std::string out;
    AppendEvent(out, data);
    return out;
  };
  EXPECT_EQ(event("x"), "data: x\n\n");
  EXPECT_EQ(event("a\nb\r\nc\rd\n"), "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
  EXPECT_EQ(event("\r\r\n\n"), "data: \ndata: \ndata: \ndata: \n\n");
  std::string named;
  AppendEvent(named, "a\nb", "message_stop");
  EXPECT_EQ(named, "event: message_stop\ndata: a\ndata: b\n\n");
}

TEST(AppendChunk, SizeIsHexadecimal) {
  std::string out;
  AppendChunk(out, std::string(26, 'x'));
  EXPECT_EQ(out, "1a\r\n" + std::string(26, 'x') + "\r\n");
}

TEST(Printable, HidesNothingAndBreaksNothing) {
  EXPECT_EQ(Printable("/v1/a?b"), "/v1/a?b");
  EXPECT_EQ(Printable("a b\n\"\\\xff"), "a\\x20b\\x0a\\x22\\x5c\\xff");
  EXPECT_EQ(Printable(std::string(500, 'x')).size(), 200u);
}

TEST(RouteTable, ExactBeforePrefix) {
  RouteTable table;
  HttpHandler handler = [](HttpRequest, std::shared_ptr<ResponseWriter>) {};
  table.Handle("GET", "/m", handler);
  table.Handle("POST", "/m", handler);
  table.Handle("GET", "/m/*", handler);
  table.Handle("DELETE", "/m/x", handler);
  EXPECT_EQ(table.Find("GET", "/m").route, "/m");
  EXPECT_EQ(table.Find("GET", "/m").allow, "GET, HEAD, POST");
  EXPECT_TRUE(table.Find("HEAD", "/m").handler);
  EXPECT_FALSE(table.Find("PUT", "/m").handler);
  EXPECT_EQ(table.Find("GET", "/m/x").route, "/m/x");
  EXPECT_FALSE(table.Find("GET", "/m/x").handler);
  EXPECT_EQ(table.Find("GET", "/m/y%2Fz").route, "/m/*");
  EXPECT_EQ(table.Find("GET", "/m/y%2Fz").path, "/m/y/z");
  for (const char* none : {"/m/", "/M", "/m/%", "", "/mm", "/m/*x/%zz"}) {
    EXPECT_EQ(table.Find("GET", none).route, "other") << none;
    EXPECT_EQ(table.Find("GET", none).allow, "") << none;
  }
}

TEST(HttpErrors, ShapeAndTypes) {
  EXPECT_EQ(ErrorBody({.status = 400, .message = "m", .param = "p"}),
            R"({"error":{"message":"m","type":"invalid_request_error","param":"p","code":null}})");
  EXPECT_EQ(ErrorBody({.status = 429, .message = "\xff\"", .code = "c"}),
            "{\"error\":{\"message\":\"\xef\xbf\xbd\\\"\",\"type\":\"rate_limit_error\",\"param\":"
            "null,\"code\":\"c\"}}");
  EXPECT_EQ(ErrorOf(absl::InvalidArgumentError("x")).status, 400);
  EXPECT_EQ(ErrorOf(absl::NotFoundError("x")).status, 404);
  EXPECT_EQ(ErrorOf(absl::ResourceExhaustedError("x")).status, 429);
  EXPECT_EQ(ErrorOf(absl::UnavailableError("x")).status, 503);
  EXPECT_EQ(ErrorOf(absl::UnimplementedError("x")).status, 501);
  EXPECT_EQ(ErrorOf(absl::InternalError("x")).status, 500);
  EXPECT_FALSE(ErrorOf(absl::InternalError("")).message.empty());
}

}  // namespace
}  // namespace staffel
