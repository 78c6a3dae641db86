// Cost of many open event streams: a server process with one I/O thread and a task pool, which
// gives every stream an event a round (as an engine step does), and a client process that reads
// them all.
//
//   sse_load [STREAMS 1000] [EVENTS 100] [ROUNDS_PER_SECOND 50] [COMPUTE_THREADS 0]
//
// Prints the server's CPU time for each event, its memory for each open stream, and how late the
// clients get an event: from the begin of its round. COMPUTE_THREADS keep as many cores busy, as
// the model's threads do: `sse_load 30 500 50 $(nproc)` is a server at work.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "server/http_listener.h"
#include "server/http_server.h"
#include "server/task_pool.h"
#include "spdlog/spdlog.h"

namespace staffel {
namespace {

using Seconds = std::chrono::duration<double>;

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](timeval t) { return static_cast<double>(t.tv_sec) + 1e-6 * t.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double ResidentKib() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1024;
}

// About what a chat chunk is, with the time of its round.
std::string Event(std::chrono::steady_clock::time_point round) {
  return "{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1,"
         "\"model\":\"model\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},"
         "\"finish_reason\":null}],\"t\":" +
         std::to_string(round.time_since_epoch().count()) + "}";
}

// Threads that compute until the end.
class Compute {
 public:
  explicit Compute(int thread_count) {
    for (int i = 0; i < thread_count; i++) threads_.emplace_back([this] { Run(); });
  }
  // CPU time of all.
  double Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    return 1e-9 * static_cast<double>(cpu_ns_);
  }

 private:
  void Run() {
    while (!stop_.load(std::memory_order_relaxed)) continue;
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    cpu_ns_ += used.tv_sec * 1'000'000'000 + used.tv_nsec;
  }

  std::atomic<bool> stop_{false};
  std::atomic<int64_t> cpu_ns_{0};
  std::vector<std::thread> threads_;
};

struct Load {
  int streams, events;
  double rounds_per_second;
  int compute_threads;
};

int RunServer(int port_pipe, const Load& load) {
  spdlog::set_level(spdlog::level::off);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<ResponseWriter>> writers;

  HttpServerOptions options;
  options.hosts = {"127.0.0.1"};
  options.port = 0;
  HttpServer server(options, nullptr);
  Status bound = server.Bind();
  if (!bound.ok()) return std::printf("%s\n", std::string(bound.message()).c_str()), 1;
  server.Handle("POST", "/stream", [&](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
    writer->BeginStream();
    std::lock_guard lock(mutex);
    writers.push_back(std::move(writer));
    changed.notify_one();
  });
  server.SetAvailable(nullptr);
  server.Start(1);
  double before_kib = ResidentKib();
  int port = server.port();
  if (write(port_pipe, &port, sizeof port) != sizeof port) return 1;
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return writers.size() == static_cast<size_t>(load.streams); });
  }
  double open_kib = ResidentKib();
  double cpu = CpuSeconds();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  double idle_cpu = CpuSeconds() - cpu;

  cpu = CpuSeconds();
  Compute compute(load.compute_threads);
  auto begin = std::chrono::steady_clock::now();
  std::atomic<int> failed = 0;
  {
    TaskPool pool(2);
    PreferShortSlices();  // as the engine thread
    for (int k = 0; k < load.events; k++) {
      std::this_thread::sleep_until(begin + k * Seconds(1 / load.rounds_per_second));
      auto round = std::chrono::steady_clock::now();
      for (auto& writer : writers) {
        pool.PostShort([&failed, round, writer] { failed += !writer->WriteEvent(Event(round)); });
      }
      pool.WakeForShort();
    }
  }
  for (auto& writer : writers) writer->EndStream();
  writers.clear();
  double compute_cpu = compute.Stop();
  Seconds wall = std::chrono::steady_clock::now() - begin;
  double peak_kib = ResidentKib();
  server.Shutdown(std::chrono::seconds(20));
  cpu = CpuSeconds() - cpu - compute_cpu;
  double events = static_cast<double>(load.streams) * load.events;
  std::printf(
      "%d streams, %d events each: %.2f us CPU an event, %.1f KiB an open stream (%.1f while "
      "writing), %.3f s CPU in an idle second, %.2f s, %d events refused\n",
      load.streams, load.events, 1e6 * cpu / events, (open_kib - before_kib) / load.streams,
      (peak_kib - before_kib) / load.streams, idle_cpu, wall.count(), failed.load());
  return failed != 0;
}

int Connect(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return -1;
  const std::string request =
      "POST /stream HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  return send(fd, request.data(), request.size(), 0) > 0 ? fd : -1;
}

// Latency of the newest event in the data, in seconds; negative if it holds none.
double Latency(const char* data, size_t size) {
  std::string_view text(data, size);
  size_t at = text.rfind("\"t\":");
  if (at == std::string_view::npos) return -1;
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return 1e-9 * static_cast<double>(now.count() - std::atoll(data + at + 4));
}

int RunClient(int port, int stream_count) {
  std::vector<pollfd> items;
  for (int i = 0; i < stream_count; i++) items.push_back({Connect(port), POLLIN, 0});
  std::vector<double> latencies;
  size_t bytes = 0;
  char data[65537];
  while (!items.empty()) {
    poll(items.data(), items.size(), -1);
    for (size_t i = 0; i < items.size(); i++) {
      if (!items[i].revents) continue;
      ssize_t got = recv(items[i].fd, data, sizeof data - 1, 0);
      if (got <= 0) {
        close(items[i].fd);
        items[i--] = items.back();
        items.pop_back();
        continue;
      }
      bytes += static_cast<size_t>(got);
      data[got] = 0;
      if (double latency = Latency(data, static_cast<size_t>(got)); latency >= 0) {
        latencies.push_back(latency);
      }
    }
  }
  std::sort(latencies.begin(), latencies.end());
  if (latencies.empty()) return 1;
  std::printf(
      "client: %.1f MB, from round to read %.2f ms (median), %.2f ms (90 %%), %.2f ms (99 %%), "
      "%.2f ms (max)\n",
      1e-6 * static_cast<double>(bytes), 1e3 * latencies[latencies.size() / 2],
      1e3 * latencies[latencies.size() * 9 / 10], 1e3 * latencies[latencies.size() * 99 / 100],
      1e3 * latencies.back());
  return 0;
}

}  // namespace
}  // namespace staffel

int main(int argc, char** argv) {
  const staffel::Load load = {.streams = argc > 1 ? std::atoi(argv[1]) : 1000,
                              .events = argc > 2 ? std::atoi(argv[2]) : 100,
                              .rounds_per_second = argc > 3 ? std::atof(argv[3]) : 50,
                              .compute_threads = argc > 4 ? std::atoi(argv[4]) : 0};
  staffel::RaiseOpenFileLimit();
  int ports[2];
  if (pipe(ports) != 0) return 1;
  pid_t child = fork();
  if (child == 0) return staffel::RunServer(ports[1], load);
  close(ports[1]);
  int port = 0;
  if (read(ports[0], &port, sizeof port) != sizeof port) return 1;
  int failed = staffel::RunClient(port, load.streams);
  int status = 0;
  waitpid(child, &status, 0);
  return failed || status != 0;
}
