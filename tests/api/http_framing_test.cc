// Bytes on the wire: framing by RFC 9112, limits and time-outs.
#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/api/http_fixture.h"

namespace staffel {
namespace {

using std::chrono::milliseconds;

std::string Chunked(std::string_view chunks, std::string_view headers = "") {
  return std::string("POST /echo HTTP/1.1\r\nHost: test\r\n")
      .append(headers)
      .append("Transfer-Encoding: chunked\r\n\r\n")
      .append(chunks);
}

TEST(HttpFraming, ChunkedBodiesAreRead) {
  TestServer t;
  std::string bytewise;
  for (char c : std::string_view("hello body")) bytewise += std::string("1\r\n") + c + "\r\n";
  for (const std::string& chunks :
       {bytewise + "0\r\n\r\n", bytewise + "0\r\nX-Sum: 1\r\nY: 2\r\n\r\n",
        bytewise + "000\r\n\r\n", std::string("A;a=b;c=\"d;\\\"\"\r\nhello body\r\n0;last\r\n\r\n"),
        std::string("00000a\r\nhello body\r\n0\r\n\r\n")}) {
    RawClient client = t.Connect();
    RawResponse response = client.Send(Chunked(chunks)).Read();
    EXPECT_EQ(response.status, 200) << chunks;
    EXPECT_EQ(response.body, "hello body") << chunks;
    EXPECT_EQ(client.Send(Request("GET", "/hello")).Read().body, "hello") << chunks;
  }
}

TEST(HttpFraming, RequestsMayArriveByteByByte) {
  TestServer t;
  for (const std::string& request :
       {Request("POST", "/echo", "body"), Chunked("4;x=1\r\nbody\r\n0\r\nT: 1\r\n\r\n")}) {
    RawClient client = t.Connect();
    for (char c : request) client.Send(std::string_view(&c, 1));
    EXPECT_EQ(client.Read().body, "body");
  }
}

TEST(HttpFraming, TrailersAreNoHeaders) {
  TestServer t;
  RawClient client = t.Connect();
  client.Send(
      "POST /hold HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
      "1\r\nx\r\n0\r\nAuthorization: Bearer x\r\n\r\n");
  HeldRequest held = t.held.Take();
  EXPECT_EQ(held.request.header("authorization"), "");
  held.writer->Send(200, "text/plain", "");
  client.Read();
}

TEST(HttpFraming, BadRequestsAreAnsweredAndClosed) {
  TestServer t;
  auto post = [](std::string_view headers, std::string_view body = "body") {
    return std::string("POST /echo HTTP/1.1\r\n").append(headers).append("\r\n").append(body);
  };
  const std::string kHost = "Host: test\r\n", kChunked = "Transfer-Encoding: chunked\r\n";
  const std::vector<std::tuple<int, std::string>> kCases = {
      {400, post(kHost + kChunked + "Content-Length: 4\r\n", "4\r\nbody\r\n0\r\n\r\n")},
      {400, post(kHost + "Content-Length: 4\r\n" + kChunked, "4\r\nbody\r\n0\r\n\r\n")},
      {400, post(kHost + kChunked + "Content-Length: 4\r\n")},
      {400, post(kHost + "Content-Length: -1\r\n")},
      {400, post(kHost + "Content-Length: +4\r\n")},
      {400, post(kHost + "Content-Length: 4, 4\r\n")},
      {400, post(kHost + "Content-Length: 4\r\nContent-Length: 4\r\n")},
      {400, post(kHost + "Content-Length: 4\r\nContent-Length: 5\r\n")},
      {400, post(kHost + "Content-Length: 0x4\r\n")},
      {400, post(kHost + "Content-Length: 4 4\r\n")},
      {400, post(kHost + "Content-Length: \r\n")},
      {400, post(kHost + "Content-Length: 99999999999999999999999\r\n")},
      {400, post(kHost + kChunked + kChunked, "0\r\n\r\n")},
      {501, post(kHost + "Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n")},
      {501, post(kHost + "Transfer-Encoding: identity\r\n")},
      {400, post(kHost + kChunked, "x\r\nbody\r\n0\r\n\r\n")},
      {400, post(kHost + kChunked, "-4\r\nbody\r\n0\r\n\r\n")},
      {400, post(kHost + kChunked, "4\r\nbodyX\r\n0\r\n\r\n")},
      {400, post(kHost + kChunked, "4 body\r\n0\r\n\r\n")},
      {400, post(kHost + kChunked, "11111111111111111\r\nbody\r\n0\r\n\r\n")},
      {417, post(kHost + "Content-Length: 4\r\nExpect: magic\r\n")},
      {400, post("Content-Length: 4\r\n")},
      {400, post(kHost + kHost + "Content-Length: 4\r\n")},
      {400, post(kHost + "Content-Length : 4\r\n")},
      {400, post(kHost + "Bad Name: x\r\n")},
      {400, post(kHost + std::string("X: a\0b\r\n", 8))},
      {400, post(kHost + ": empty\r\n")},
      {400, post(kHost + "no colon\r\n")},
      {400, "GET /hello\r\n\r\n"},
      {400, "GET  /hello HTTP/1.1\r\nHost: t\r\n\r\n"},
      {400, "GET /hello HTTP/1.1\nHost: t\n\n\r\n"},
      {400, "/hello\r\n\r\n"},
      {400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"},
      {400, "GET /hello HTTX/1.1\r\nHost: t\r\n\r\n"},
      {505, "GET /hello HTTP/2.0\r\nHost: t\r\n\r\n"},
      {505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
      {400, "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
  };
  for (const auto& [status, bytes] : kCases) {
    RawClient client = t.Connect();
    RawResponse response = client.Send(bytes).Read();
    EXPECT_EQ(response.status, status) << bytes;
    EXPECT_EQ(response.header("content-type"), "application/json") << bytes;
    EXPECT_EQ(response.header("connection"), "close") << bytes;
    EXPECT_TRUE(nlohmann::json::parse(response.body).at("error").at("message").is_string());
    EXPECT_TRUE(client.AtEnd()) << bytes;
  }
  EXPECT_EQ(t.Ask(Request("GET", "/hello")).status, 200);
}

TEST(HttpFraming, ExpectContinueIsAnsweredAtOnce) {
  TestServer t;
  RawClient client = t.Connect();
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\n");
  EXPECT_EQ(client.Read().status, 100);
  EXPECT_EQ(client.Send("body").Read().body, "body");
  client.Send(Chunked("", "Expect: 100-continue\r\n"));
  EXPECT_EQ(client.Read().status, 100);
  EXPECT_EQ(client.Send("4\r\nbody\r\n0\r\n\r\n").Read().body, "body");

  // No invitation where the head is refused, or has no body.
  client.Send(
      "POST /nope HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.Read().status, 404);
  EXPECT_TRUE(client.AtEnd());
  EXPECT_EQ(t.Ask(Request("GET", "/hello", "", "Expect: 100-continue\r\n")).status, 200);
}

TEST(HttpFraming, KeepAliveAndHttp10) {
  TestServer t;
  RawClient modern = t.Connect();
  for (int i = 0; i < 3; i++) {
    RawResponse response = modern.Send(Request("GET", "/hello")).Read();
    EXPECT_EQ(response.header("connection"), "");
  }
  EXPECT_EQ(modern.Send(Request("GET", "/hello", "", "Connection: close\r\n"))
                .Read()
                .header("connection"),
            "close");
  EXPECT_TRUE(modern.AtEnd());

  RawClient old = t.Connect();
  EXPECT_EQ(
      old.Send("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").Read().header("connection"),
      "keep-alive");
  EXPECT_EQ(old.Send("GET /hello HTTP/1.0\r\n\r\n").Read().header("connection"), "close");
  EXPECT_TRUE(old.AtEnd());
}

TEST(HttpFraming, PipelinedRequestsAreAnsweredInOrder) {
  TestServer t;
  RawClient client = t.Connect();
  std::string burst = "\r\n";
  for (int i = 0; i < 50; i++) burst += Request("POST", "/echo", std::to_string(i));
  client.Send(burst);
  for (int i = 0; i < 50; i++) EXPECT_EQ(client.Read().body, std::to_string(i));

  // Behind a slow one as well, and more than is kept in memory.
  std::string big(50'000, 'x');
  std::thread sender([&] {
    client.Send(Request("POST", "/hold", "first"));
    for (int i = 0; i < 10; i++) client.Send(Request("POST", "/echo", big));
  });
  t.held.Take().writer->Send(200, "text/plain", "held");
  EXPECT_EQ(client.Read().body, "held");
  for (int i = 0; i < 10; i++) EXPECT_EQ(client.Read().body.size(), big.size());
  sender.join();
}

TEST(HttpFraming, HalfClosedAfterACompleteAnswerStillGetsIt) {
  TestServer t;
  RawClient client = t.Connect();
  client.Send(Request("GET", "/hello") + Request("GET", "/hello"));
  client.ShutdownWrite();
  EXPECT_EQ(client.Read().body, "hello");
  EXPECT_EQ(client.Read().body, "hello");
  EXPECT_TRUE(client.AtEnd());
}

HttpServerOptions SmallLimits() {
  HttpServerOptions options = LocalOptions();
  options.limits.header_bytes_max = 4096;
  options.limits.header_count_max = 20;
  options.limits.body_bytes_max = 100'000;
  options.limits.bodies_bytes_max = 150'000;
  return options;
}

TEST(HttpLimits, HeadersAreBounded) {
  TestServer t(SmallLimits());
  std::string many, fits;
  for (int i = 0; i < 20; i++) many += "X-" + std::to_string(i) + ": v\r\n";
  for (int i = 0; i < 19; i++) fits += "X-" + std::to_string(i) + ": v\r\n";
  EXPECT_EQ(t.Ask(Request("GET", "/hello", "", many)).status, 431);
  EXPECT_EQ(t.Ask(Request("GET", "/hello", "", fits)).status, 200);
  std::string big = "X: " + std::string(5000, 'v') + "\r\n";
  EXPECT_EQ(t.Ask(Request("GET", "/hello", "", big)).status, 431);
  EXPECT_EQ(t.Ask(Request("GET", "/" + std::string(5000, 'a'))).status, 414);
  // Without an end, and much more than any buffer.
  EXPECT_EQ(t.Ask("GET /" + std::string(1'000'000, 'a')).status, 414);
  EXPECT_EQ(t.Ask("GET / HTTP/1.1\r\nX: " + std::string(1'000'000, 'a')).status, 431);
  EXPECT_EQ(t.Ask(Request("GET", "/hello")).status, 200);
}

TEST(HttpLimits, BodiesAreBoundedByTheHeaderAlone) {
  TestServer t(SmallLimits());
  EXPECT_EQ(t.Ask(Request("POST", "/echo", std::string(100'000, 'b'))).body.size(), 100'000u);
  for (const char* length : {"100001", "1073741824", "18446744073709551615"}) {
    RawClient client = t.Connect();
    client.Send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: " + std::string(length) +
                "\r\n\r\n");
    RawResponse response = client.Read();
    EXPECT_EQ(response.status, 413);
    EXPECT_EQ(nlohmann::json::parse(response.body)["error"]["code"], "request_too_large");
    EXPECT_TRUE(client.AtEnd());
  }
}

TEST(HttpLimits, ChunkedBodiesAreCounted) {
  TestServer t(SmallLimits());
  std::string chunk = "2710\r\n" + std::string(10'000, 'c') + "\r\n";
  std::string ten, eleven;
  for (int i = 0; i < 10; i++) ten += chunk;
  eleven = ten + "1\r\nx\r\n";
  EXPECT_EQ(t.Ask(Chunked(ten + "0\r\n\r\n")).status, 200);
  EXPECT_EQ(t.Ask(Chunked(eleven + "0\r\n\r\n")).status, 413);
  EXPECT_EQ(t.Ask(Chunked("fffffff\r\n")).status, 413);
  // A chunk header or trailers without end are not buffered without end.
  EXPECT_EQ(t.Ask(Chunked("1;" + std::string(1'000'000, 'x'))).status, 400);
  EXPECT_EQ(t.Ask(Chunked("0\r\nX: " + std::string(1'000'000, 'x'))).status, 400);
}

TEST(HttpLimits, ARefusedUploadStillGetsItsAnswer) {
  // The client writes all of its body before it reads: the answer must survive that.
  TestServer t(SmallLimits());
  for (int i = 0; i < 5; i++) {
    RawClient client = t.Connect();
    client.Send(Request("POST", "/echo", std::string(8 << 20, 'b')));
    EXPECT_EQ(client.Read().status, 413);
    EXPECT_TRUE(client.AtEnd());
  }
}

TEST(HttpLimits, BodiesOfAllRequestsAreBounded) {
  TestServer t(SmallLimits());
  RawClient first = t.Connect();
  first.Send(Request("POST", "/hold", std::string(100'000, 'b')));
  HeldRequest held = t.held.Take();
  RawResponse refused = t.Ask(Request("POST", "/echo", std::string(60'000, 'b')));
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.header("retry-after"), "");
  EXPECT_EQ(t.Ask(Request("POST", "/echo", std::string(40'000, 'b'))).status, 200);
  held.writer->Send(200, "text/plain", "");
  first.Read();
  EXPECT_EQ(t.Ask(Request("POST", "/echo", std::string(60'000, 'b'))).status, 200);
}

TEST(HttpLimits, ConnectionsAreBounded) {
  HttpServerOptions options = LocalOptions();
  options.limits.connections_max = 2;
  TestServer t(options);
  RawClient a = t.Connect(), b = t.Connect();
  EXPECT_EQ(a.Send(Request("GET", "/hello")).Read().status, 200);
  EXPECT_EQ(b.Send(Request("GET", "/hello")).Read().status, 200);
  RawResponse refused = t.Ask(Request("GET", "/hello"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.header("retry-after"), "");
}

HttpServerOptions ShortTimeouts() {
  HttpServerOptions options = LocalOptions();
  options.timeouts = {.idle = milliseconds(100),
                      .header = milliseconds(100),
                      .body = milliseconds(100),
                      .write = milliseconds(200),
                      .linger = milliseconds(200)};
  return options;
}

TEST(HttpTimeouts, SlowHeadersAndBodiesGet408) {
  TestServer t(ShortTimeouts());
  for (const char* bytes :
       {"G", "GET /hello HTTP/1.1\r\nHost: t\r\n",
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbo",
        "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n"}) {
    RawClient client = t.Connect();
    RawResponse response = client.Send(bytes).Read();
    EXPECT_EQ(response.status, 408) << bytes;
    EXPECT_TRUE(client.AtEnd()) << bytes;
  }
}

TEST(HttpTimeouts, DrippingBytesDoNotExtendAHead) {
  TestServer t(ShortTimeouts());
  RawClient client = t.Connect();
  client.Send("GET /hello HTTP/1.1\r\n");
  auto begin = std::chrono::steady_clock::now();
  while (!client.Readable(10)) client.Send("X: y\r\n");
  EXPECT_EQ(client.Read().status, 408);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(HttpTimeouts, IdleConnectionsAreClosedSilently) {
  TestServer t(ShortTimeouts());
  RawClient fresh = t.Connect();
  EXPECT_TRUE(fresh.AtEnd());
  RawClient used = t.Connect();
  EXPECT_EQ(used.Send(Request("GET", "/hello")).Read().status, 200);
  EXPECT_TRUE(used.AtEnd());
}

TEST(HttpTimeouts, ARequestMayComputeLongerThanAnyTimeout) {
  TestServer t(ShortTimeouts());
  RawClient client = t.Connect();
  client.Send(Request("POST", "/hold"));
  HeldRequest held = t.held.Take();
  EXPECT_FALSE(client.Readable(400));
  held.writer->Send(200, "text/plain", "late");
  EXPECT_EQ(client.Read().body, "late");
}

}  // namespace
}  // namespace staffel
