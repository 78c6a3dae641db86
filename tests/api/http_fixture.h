// A real HttpServer on a free port with handlers that tests steer.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "server/http_server.h"
#include "spdlog/spdlog.h"
#include "tests/api/raw_client.h"

namespace staffel {

// A value that another thread brings.
template <class T>
class Box {
 public:
  void Put(T value) {
    std::lock_guard lock(mutex_);
    values_.push_back(std::move(value));
    changed_.notify_all();
  }
  T Take() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [&] { return !values_.empty(); })) {
      throw std::runtime_error("nothing came within 20 s");
    }
    T value = std::move(values_.front());
    values_.pop_front();
    return value;
  }
  bool empty() {
    std::lock_guard lock(mutex_);
    return values_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> values_;
};

struct HeldRequest {
  HttpRequest request;
  std::shared_ptr<ResponseWriter> writer;
};

inline HttpServerOptions LocalOptions() {
  HttpServerOptions options;
  options.hosts = {"127.0.0.1"};
  options.port = 0;
  options.version = "1.2.3";
  return options;
}

// Routes: GET /hello; POST /echo (the body back); POST /hold (the test answers, see `held`);
// POST /drop (no answer); POST /throw; GET /models/* (the path back).
class TestServer {
 public:
  explicit TestServer(HttpServerOptions options = LocalOptions(), int io_threads = 1,
                      bool available = true)
      : server(std::move(options), &metrics) {
    spdlog::set_level(spdlog::level::off);
    Status bound = server.Bind();
    if (!bound.ok()) throw std::runtime_error(std::string(bound.message()));
    server.Start(io_threads);
    server.Handle("GET", "/hello", [](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
      writer->Send(200, "text/plain", "hello");
    });
    server.Handle("POST", "/echo", [](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
      writer->Send(200, "text/plain", std::move(request.body));
    });
    server.Handle("POST", "/hold",
                  [this](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
                    held.Put({std::move(request), std::move(writer)});
                  });
    server.Handle("POST", "/drop", [](HttpRequest, std::shared_ptr<ResponseWriter>) {});
    server.Handle("POST", "/throw", [](HttpRequest, std::shared_ptr<ResponseWriter>) {
      throw std::runtime_error("secret detail");
    });
    server.Handle("GET", "/models/*",
                  [](HttpRequest request, std::shared_ptr<ResponseWriter> writer) {
                    writer->Send(200, "text/plain", request.path);
                  });
    if (available) server.SetAvailable(nullptr);
  }

  RawClient Connect() { return RawClient(server.port()); }
  // One request on a connection of its own.
  RawResponse Ask(std::string_view request, bool head_only = false) {
    return Connect().Send(request).Read(head_only);
  }

  Metrics metrics{"1.2.3"};
  Box<HeldRequest> held;
  HttpServer server;
};

// A request with Host, and Content-Length where there is a body or a POST. `headers`: further
// lines, each with its CRLF.
inline std::string Request(std::string_view method, std::string_view target,
                           std::string_view body = "", std::string_view headers = "") {
  std::string out;
  out.append(method).append(" ").append(target).append(" HTTP/1.1\r\nHost: test\r\n");
  out.append(headers);
  if (!body.empty() || method == "POST") {
    out.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
  }
  return out.append("\r\n").append(body);
}

}  // namespace staffel
