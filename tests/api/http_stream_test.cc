// Server-sent events: framing, pings, slow readers, clients that leave.
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>

#include "tests/api/http_fixture.h"

namespace staffel {
namespace {

using std::chrono::milliseconds;

TEST(HttpStream, EventsArriveAsTheyAreWritten) {
  TestServer t;
  RawClient client = t.Connect();
  client.Send(Request("POST", "/hold"));
  HeldRequest held = t.held.Take();
  held.writer->BeginStream({{"X-More", "yes"}});
  RawResponse head = client.ReadHead();  // before any event
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(head.header("cache-control"), "no-cache");
  EXPECT_EQ(head.header("x-accel-buffering"), "no");
  EXPECT_EQ(head.header("transfer-encoding"), "chunked");
  EXPECT_EQ(head.header("x-more"), "yes");
  EXPECT_EQ(head.header("x-request-id"), held.request.request_id);
  for (const char* data : {"{\"a\":1}", "\xf0\x9f\x98\x80", "[DONE]"}) {
    EXPECT_TRUE(held.writer->WriteEvent(data));
    EXPECT_EQ(client.ReadChunk(), std::string("data: ") + data + "\n\n");
  }
  held.writer->EndStream();
  EXPECT_EQ(client.ReadChunk(), "");
  EXPECT_EQ(client.Send(Request("GET", "/hello")).Read().body, "hello");
}

TEST(HttpStream, EventsNeedNoOtherThread) {
  TestServer t;
  std::promise<void> blocked, release;
  t.server.Handle("GET", "/block", [&](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    blocked.set_value();
    release.get_future().wait();
    writer->Send(200, "text/plain", "released");
  });
  RawClient client = t.Connect();
  client.Send(Request("POST", "/hold"));
  HeldRequest held = t.held.Take();
  held.writer->BeginStream();
  client.ReadHead();
  RawClient blocker = t.Connect();
  blocker.Send(Request("GET", "/block"));
  blocked.get_future().wait();  // the only I/O thread stands still
  for (int i = 0; i < 3; i++) {
    EXPECT_TRUE(held.writer->WriteEvent("x"));
    EXPECT_EQ(client.ReadChunk(), "data: x\n\n");
  }
  release.set_value();
  EXPECT_EQ(blocker.Read().body, "released");
  held.writer->EndStream();
  EXPECT_EQ(client.ReadChunk(), "");
}

TEST(HttpStream, NewlinesInsideAnEventStayInsideIt) {
  TestServer t;
  RawClient client = t.Connect();
  client.Send(Request("POST", "/hold"));
  HeldRequest held = t.held.Take();
  held.writer->BeginStream();
  held.writer->WriteEvent("a\nb\r\nc\rd");
  held.writer->EndStream();
  EXPECT_EQ(client.Read().body, "data: a\ndata: b\ndata: c\ndata: d\n\n");
}

TEST(HttpStream, OldClientsGetItWithoutChunks) {
  TestServer t;
  RawClient client = t.Connect();
  client.Send("POST /hold HTTP/1.0\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n");
  HeldRequest held = t.held.Take();
  held.writer->BeginStream();
  held.writer->WriteEvent("x");
  held.writer->EndStream();
  RawResponse head = client.ReadHead();
  EXPECT_EQ(head.header("transfer-encoding"), "");
  EXPECT_EQ(head.header("connection"), "close");
  EXPECT_EQ(client.ReadToEnd(), "data: x\n\n");
}

TEST(HttpStream, ADroppedStreamEndsWithAnErrorEvent) {
  TestServer t;
  RawClient client = t.Connect();
  client.Send(Request("POST", "/hold"));
  HeldRequest held = t.held.Take();
  held.writer->BeginStream();
  held.writer->WriteEvent("x");
  held.writer.reset();
  std::string body = client.Read().body;
  ASSERT_TRUE(body.starts_with("data: x\n\ndata: {"));
  ASSERT_TRUE(body.ends_with("\n\n"));
  auto error = nlohmann::json::parse(body.substr(15));
  EXPECT_TRUE(error.at("error").at("message").is_string());
}

TEST(HttpStream, SilenceIsFilledWithPings) {
  HttpServerOptions options = LocalOptions();
  options.ping_interval = milliseconds(30);
  TestServer t(options);
  RawClient client = t.Connect();
  client.Send(Request("POST", "/hold"));
  HeldRequest held = t.held.Take();
  // Not before the stream has begun.
  EXPECT_FALSE(client.Readable(100));
  held.writer->BeginStream();
  client.ReadHead();
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; i++) EXPECT_EQ(client.ReadChunk(), ": ping\n\n");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(5 * 30 - 30));
  held.writer->WriteEvent("x");
  std::string chunk;
  while ((chunk = client.ReadChunk()) == ": ping\n\n") continue;
  EXPECT_EQ(chunk, "data: x\n\n");
  held.writer->EndStream();
  while ((chunk = client.ReadChunk()) == ": ping\n\n") continue;
  EXPECT_EQ(chunk, "");
  // Not after its end.
  EXPECT_FALSE(client.Readable(100));
}

TEST(HttpStream, PingsCanBeSwitchedOff) {
  HttpServerOptions options = LocalOptions();
  options.ping_interval = Duration::zero();
  TestServer t(options);
  RawClient client = t.Connect();
  client.Send(Request("POST", "/hold"));
  HeldRequest held = t.held.Take();
  held.writer->BeginStream();
  client.ReadHead();
  EXPECT_FALSE(client.Readable(100));
  held.writer->EndStream();
  EXPECT_EQ(client.ReadChunk(), "");
}

// Ways for a client to leave.
void CloseIt(RawClient& client) { client.Close(); }
void ResetIt(RawClient& client) { client.Reset(); }
void HalfCloseIt(RawClient& client) { client.ShutdownWrite(); }

TEST(HttpDisconnect, IsNoticedWhileNothingIsWritten) {
  TestServer t;
  for (auto leave : {CloseIt, ResetIt, HalfCloseIt}) {
    for (bool stream : {false, true}) {
      RawClient client = t.Connect();
      client.Send(Request("POST", "/hold", "body"));
      HeldRequest held = t.held.Take();
      auto gone = std::make_shared<std::promise<void>>();
      held.writer->OnDisconnect([gone] { gone->set_value(); });
      if (stream) held.writer->BeginStream();
      leave(client);
      ASSERT_EQ(gone->get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
      // Everything afterwards is harmless, and a late callback runs within the call.
      EXPECT_FALSE(held.writer->WriteEvent("x"));
      held.writer->Send(200, "text/plain", "x");
      held.writer->EndStream();
      bool late = false;
      held.writer->OnDisconnect([&] { late = true; });
      EXPECT_TRUE(late);
    }
  }
  EXPECT_EQ(t.Ask(Request("GET", "/hello")).body, "hello");
}

TEST(HttpDisconnect, IsNoticedBehindAPipelinedRequest) {
  TestServer t;
  RawClient client = t.Connect();
  client.Send(Request("POST", "/hold") + Request("GET", "/hello"));
  HeldRequest held = t.held.Take();
  std::promise<void> gone;
  held.writer->OnDisconnect([&] { gone.set_value(); });
  client.Close();
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST(HttpDisconnect, CallbacksDieWithTheAnswer) {
  TestServer t;
  for (bool stream : {false, true}) {
    RawClient client = t.Connect();
    client.Send(Request("POST", "/hold"));
    HeldRequest held = t.held.Take();
    auto token = std::make_shared<bool>(false);
    held.writer->OnDisconnect([token] { *token = true; });
    held.writer->OnDisconnect([token] { *token = true; });  // replaces the first
    EXPECT_EQ(token.use_count(), 2);
    if (stream) {
      held.writer->BeginStream();
      held.writer->EndStream();
    } else {
      held.writer->Send(200, "text/plain", "x");
    }
    EXPECT_EQ(token.use_count(), 1);
    client.Read();
    client.Close();
    while (t.server.open_connections() > 0) std::this_thread::yield();
    EXPECT_FALSE(*token);
  }
}

// Writes events until one is refused; the bytes taken.
size_t FillStream(ResponseWriter& writer, std::string_view event) {
  size_t bytes = 0;
  while (writer.WriteEvent(event)) bytes += event.size();
  return bytes;
}

TEST(HttpSlowReader, IsDroppedWhenItsBufferIsFull) {
  HttpServerOptions options = LocalOptions();
  options.limits.stream_buffer_bytes_max = 100'000;
  TestServer t(options);
  RawClient client(t.server.port(), /*receive_buffer_bytes=*/4096);
  client.Send(Request("POST", "/hold"));
  HeldRequest held = t.held.Take();
  std::promise<void> gone;
  held.writer->OnDisconnect([&] { gone.set_value(); });
  held.writer->BeginStream();
  std::string event(1000, 'x');
  // Our buffer and the kernel's two; on loopback those take some hundred KiB.
  EXPECT_LT(FillStream(*held.writer, event), 4u << 20);
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_THROW(client.ReadToEnd(), std::runtime_error);  // a reset: the end would look like [DONE]
  // Others are not touched.
  EXPECT_EQ(t.Ask(Request("GET", "/hello")).body, "hello");
}

TEST(HttpSlowReader, IsDroppedAfterTheWriteTimeout) {
  HttpServerOptions options = LocalOptions();
  options.timeouts.write = milliseconds(150);
  options.ping_interval = Duration::zero();
  for (bool stream : {false, true}) {
    TestServer t(options);
    RawClient client(t.server.port(), 4096);
    client.Send(Request("POST", "/hold"));
    HeldRequest held = t.held.Take();
    std::string much(8 << 20, 'x');
    std::promise<void> gone;
    if (stream) {
      held.writer->OnDisconnect([&] { gone.set_value(); });
      held.writer->BeginStream();
      held.writer->WriteEvent(much);
      EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
    } else {
      held.writer->Send(200, "text/plain", much);
    }
    while (t.server.open_connections() > 0) std::this_thread::yield();
  }
}

TEST(HttpSlowReader, GetsEverythingIfItIsOnlySlow) {
  TestServer t;
  RawClient client(t.server.port(), 4096);
  client.Send(Request("POST", "/hold"));
  HeldRequest held = t.held.Take();
  held.writer->BeginStream();
  std::string want;
  for (int i = 0; i < 1500; i++) {
    std::string event = std::to_string(i) + std::string(1000, 'x');
    ASSERT_TRUE(held.writer->WriteEvent(event)) << i;
    want += "data: " + event + "\n\n";
  }
  held.writer->EndStream();
  EXPECT_EQ(client.Read().body, want);
}

TEST(HttpStream, ManyThreadsWriteManyStreams) {
  TestServer t(LocalOptions(), /*io_threads=*/2);
  constexpr int kStreams = 32, kEvents = 200;
  std::vector<RawClient> clients;
  std::vector<std::shared_ptr<ResponseWriter>> writers;
  for (int i = 0; i < kStreams; i++) {
    clients.push_back(t.Connect());
    clients.back().Send(Request("POST", "/hold"));
    writers.push_back(t.held.Take().writer);
  }
  std::vector<std::thread> threads;
  for (int part = 0; part < 4; part++) {
    threads.emplace_back([&, part] {
      for (int i = part; i < kStreams; i += 4) writers[i]->BeginStream();
      for (int k = 0; k < kEvents; k++) {
        for (int i = part; i < kStreams; i += 4) writers[i]->WriteEvent(std::to_string(k));
      }
      for (int i = part; i < kStreams; i += 4) writers[i]->EndStream();
    });
  }
  std::string want;
  for (int k = 0; k < kEvents; k++) want += "data: " + std::to_string(k) + "\n\n";
  for (RawClient& client : clients) EXPECT_EQ(client.Read().body, want);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace staffel
