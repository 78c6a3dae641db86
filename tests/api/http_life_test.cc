// Binding, draining, leaks, the access log.
#include <netdb.h>

#include <filesystem>
#include <future>
#include <sstream>

#include "spdlog/sinks/ostream_sink.h"
#include "tests/api/http_fixture.h"

namespace staffel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Status BindOn(std::string host, int port, std::string unix_socket = "") {
  HttpServerOptions options;
  options.hosts = {std::move(host)};
  options.port = port;
  options.unix_socket = std::move(unix_socket);
  return HttpServer(options, nullptr).Bind();
}

TEST(HttpBind, FailuresNameTheAddress) {
  TestServer first;
  int port = first.server.port();
  ASSERT_GT(port, 0);
  Status busy = BindOn("127.0.0.1", port);
  EXPECT_EQ(busy.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(busy.message()).find("127.0.0.1:" + std::to_string(port)),
            std::string::npos)
      << busy;
  EXPECT_FALSE(BindOn("0.0.0.0", port).ok());
  EXPECT_EQ(first.Ask(Request("GET", "/hello")).status, 200);

  Status foreign = BindOn("203.0.113.77", 8000);
  EXPECT_NE(std::string(foreign.message()).find("203.0.113.77:8000"), std::string::npos) << foreign;
  Status unknown = BindOn("no such host", 8000);
  EXPECT_NE(std::string(unknown.message()).find("no such host:8000"), std::string::npos) << unknown;
  for (int bad : {-1, 65536, 70000}) {
    Status status = BindOn("127.0.0.1", bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(std::to_string(bad)), std::string::npos) << status;
  }
}

TEST(HttpBind, ThePortIsNotShared) {
  TestServer server;
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server.server.port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_NE(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(fd);
}

TEST(HttpBind, ClientsQueueBetweenBindAndStart) {
  HttpServer server(LocalOptions(), nullptr);
  ASSERT_TRUE(server.Bind().ok());
  RawClient client(server.port());
  client.Send(Request("GET", "/live"));
  server.Start(1);
  EXPECT_EQ(client.Read().status, 200);
}

// Status of GET /live over this address; 0 if it cannot be reached.
int AskLive(const char* host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  if (getaddrinfo(host, std::to_string(port).c_str(), &hints, &found) != 0) return 0;
  int fd = socket(found->ai_family, SOCK_STREAM, 0);
  int failed = connect(fd, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  std::string request = Request("GET", "/live", "", "Connection: close\r\n"), answer;
  char data[4096];
  if (!failed && send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    for (ssize_t got; (got = recv(fd, data, sizeof data, 0)) > 0;) {
      answer.append(data, static_cast<size_t>(got));
    }
  }
  close(fd);
  return answer.size() > 12 ? std::stoi(answer.substr(9, 3)) : 0;
}

TEST(HttpBind, Ipv6AndDualStack) {
  if (Status status = BindOn("::1", 0); !status.ok()) {  // a machine without IPv6
    EXPECT_NE(std::string(status.message()).find("[::1]:0"), std::string::npos) << status;
    return;
  }
  for (const char* host : {"::1", "[::1]"}) {
    HttpServerOptions options = LocalOptions();
    options.hosts = {host};
    TestServer t(options);
    EXPECT_EQ(AskLive("::1", t.server.port()), 200);
    EXPECT_EQ(AskLive("127.0.0.1", t.server.port()), 0);
    EXPECT_EQ(t.server.addresses()[0], "[::1]:" + std::to_string(t.server.port()));
  }
  for (std::vector<std::string> hosts :
       {std::vector<std::string>{"::"}, {"0.0.0.0", "::"}, {"127.0.0.1", "::1"}, {""}}) {
    HttpServerOptions options = LocalOptions();
    options.hosts = hosts;
    TestServer t(options);
    EXPECT_EQ(AskLive("::1", t.server.port()), 200) << hosts[0];
    EXPECT_EQ(AskLive("127.0.0.1", t.server.port()), 200) << hosts[0];
  }
}

TEST(HttpBind, NamesAreResolved) {
  HttpServerOptions options = LocalOptions();
  options.hosts = {"localhost"};
  TestServer t(options);
  EXPECT_EQ(AskLive("127.0.0.1", t.server.port()), 200);
}

TEST(HttpBind, UnixSocket) {
  auto folder = std::filesystem::temp_directory_path() / ("staffel-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::string path = folder / "s.sock";
  HttpServerOptions options = LocalOptions();
  options.unix_socket = path;
  {
    TestServer t(options);
    EXPECT_EQ(t.server.addresses().back(), "unix:" + path);
    RawClient client(path);
    EXPECT_EQ(client.Send(Request("GET", "/hello")).Read().body, "hello");
    Status taken = BindOn("127.0.0.1", 0, path);
    EXPECT_NE(std::string(taken.message()).find(path), std::string::npos) << taken;
    EXPECT_EQ(RawClient(path).Send(Request("GET", "/hello")).Read().body, "hello");
  }
  EXPECT_FALSE(std::filesystem::exists(path));

  // What a killed server left is replaced; what is no socket is not.
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(fd);
  {
    TestServer t(options);
    EXPECT_EQ(RawClient(path).Send(Request("GET", "/hello")).Read().body, "hello");
  }
  std::fclose(std::fopen(path.c_str(), "w"));
  EXPECT_FALSE(BindOn("127.0.0.1", 0, path).ok());
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_FALSE(BindOn("127.0.0.1", 0, std::string(200, 'x')).ok());
  EXPECT_FALSE(BindOn("127.0.0.1", 0, folder / "none" / "s.sock").ok());
  std::filesystem::remove_all(folder);
}

TEST(HttpDrain, RunningRequestsFinishAndIdleOnesClose) {
  TestServer t(LocalOptions(), 2);
  RawClient idle = t.Connect(), plain = t.Connect(), stream = t.Connect();
  EXPECT_EQ(idle.Send(Request("GET", "/hello")).Read().status, 200);
  plain.Send(Request("POST", "/hold"));
  HeldRequest held_plain = t.held.Take();
  stream.Send(Request("POST", "/hold"));
  HeldRequest held_stream = t.held.Take();
  held_stream.writer->BeginStream();
  EXPECT_EQ(stream.ReadHead().status, 200);

  t.server.StopAccepting();
  EXPECT_TRUE(idle.AtEnd());
  EXPECT_THROW(t.Connect().Send(Request("GET", "/hello")).Read(), std::runtime_error);

  std::promise<void> ended;
  std::thread stopper([&] {
    t.server.Shutdown(seconds(20));
    ended.set_value();
  });
  auto end = ended.get_future();
  held_plain.writer->Send(200, "text/plain", "late");
  RawResponse late = plain.Read();
  EXPECT_EQ(late.body, "late");
  EXPECT_EQ(late.header("connection"), "close");
  EXPECT_TRUE(plain.AtEnd());
  EXPECT_EQ(end.wait_for(milliseconds(20)), std::future_status::timeout);
  held_stream.writer->WriteEvent("x");
  held_stream.writer->EndStream();
  EXPECT_EQ(stream.ReadChunk(), "data: x\n\n");
  EXPECT_EQ(stream.ReadChunk(), "");
  EXPECT_TRUE(stream.AtEnd());
  EXPECT_EQ(end.wait_for(seconds(10)), std::future_status::ready);
  stopper.join();
}

TEST(HttpDrain, TheDeadlineCancelsWhatIsLeft) {
  TestServer t;
  RawClient client = t.Connect();
  client.Send(Request("POST", "/hold"));
  HeldRequest held = t.held.Take();
  held.writer->BeginStream();
  bool gone = false;
  held.writer->OnDisconnect([&] { gone = true; });
  t.server.Shutdown(milliseconds(50));
  EXPECT_TRUE(gone);
  EXPECT_FALSE(held.writer->WriteEvent("x"));
  EXPECT_EQ(t.server.open_connections(), 0);
}

TEST(HttpDrain, WritersMayOutliveTheServer) {
  std::shared_ptr<ResponseWriter> writer;
  std::atomic<bool> stop = false;
  std::thread engine;
  {
    TestServer t;
    RawClient client = t.Connect();
    client.Send(Request("POST", "/hold"));
    writer = t.held.Take().writer;
    writer->BeginStream();
    engine = std::thread([&] {
      while (!stop) writer->WriteEvent("x");
    });
    client.ReadHead();
  }
  stop = true;
  engine.join();
  EXPECT_FALSE(writer->WriteEvent("x"));
  writer.reset();
}

TEST(HttpDrain, ShutdownWithoutStartOrTwice) {
  HttpServer never(LocalOptions(), nullptr);
  never.Shutdown(seconds(1));
  HttpServer bound(LocalOptions(), nullptr);
  ASSERT_TRUE(bound.Bind().ok());
  bound.Shutdown(seconds(1));
  TestServer t;
  t.server.Shutdown(seconds(1));
  t.server.Shutdown(seconds(1));
}

int OpenFiles() {
  int count = 0;
  for ([[maybe_unused]] auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count++;
  return count;
}

TEST(HttpLeaks, FourHundredAbortedStreams) {
  TestServer t(LocalOptions(), 2);
  auto abort_one = [&](int i) {
    RawClient client = t.Connect();
    client.Send(Request("POST", "/hold", std::string(1000, 'x')));
    HeldRequest held = t.held.Take();
    std::promise<void> gone;
    held.writer->OnDisconnect([&] { gone.set_value(); });
    if (i % 3) held.writer->BeginStream();
    if (i % 3) client.ReadHead();
    for (int k = 0; k < i % 6 && i % 3; k++) {
      held.writer->WriteEvent("x");
      client.ReadChunk();
    }
    i % 2 ? client.Reset() : client.Close();
    gone.get_future().get();
  };
  abort_one(1);
  while (t.server.open_connections() > 0) std::this_thread::yield();
  int files = OpenFiles();
  for (int i = 0; i < 400; i++) abort_one(i);
  while (t.server.open_connections() > 0) std::this_thread::yield();
  EXPECT_EQ(OpenFiles(), files);
  std::string metrics = t.Ask(Request("GET", "/metrics")).body;
  EXPECT_NE(metrics.find("staffel_http_connections 1\n"), std::string::npos);
  EXPECT_NE(metrics.find("route=\"/hold\",status=\"499\"} 134\n"), std::string::npos) << metrics;
}

// Takes what is logged while it lives.
class LogCapture {
 public:
  LogCapture() : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    auto logger = std::make_shared<spdlog::logger>("capture", sink);
    logger->set_pattern("%l %v");
    logger->set_level(spdlog::level::info);
    spdlog::set_default_logger(logger);
  }
  ~LogCapture() { spdlog::set_default_logger(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
};

TEST(HttpLog, OneLineARequestWithoutBodiesOrKeys) {
  HttpServerOptions options = LocalOptions();
  options.api_keys = {"secret-key"};
  auto t = std::make_unique<TestServer>(options);
  LogCapture capture;
  std::string key = "Authorization: Bearer secret-key\r\nX-Request-Id: my-id\r\n";
  t->Ask(Request("POST", "/echo?key=secret-query", "secret-body", key));
  t->Ask(Request("POST", "/echo", "secret-body", "Authorization: Bearer wrong-key\r\n"));
  t->Ask(Request("GET", "/\"\xff\xfe", "", key));
  t->Ask(Request("GET", "/health"));
  t.reset();
  std::string text = capture.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_NE(text.find("info 127.0.0.1:"), std::string::npos) << text;
  EXPECT_NE(text.find(" POST /echo 200 "), std::string::npos) << text;
  EXPECT_NE(text.find(" POST /echo 401 "), std::string::npos) << text;
  EXPECT_NE(text.find(" GET /\\x22\\xff\\xfe 404 "), std::string::npos) << text;
  EXPECT_NE(text.find(" my-id\n"), std::string::npos) << text;
  for (const char* hidden : {"secret", "wrong-key"}) {
    EXPECT_EQ(text.find(hidden), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace staffel
