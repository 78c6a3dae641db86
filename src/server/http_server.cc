#include "server/http_server.h"

#include <fcntl.h>
#include <netdb.h>
#include <unistd.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "base/thread.h"
#include "server/http_connection.h"
#include "server/http_context.h"
#include "server/http_listener.h"
#include "spdlog/spdlog.h"

namespace staffel {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using StreamProtocol = net::generic::stream_protocol;
using Acceptor = net::basic_socket_acceptor<StreamProtocol>;
using WorkGuard = net::executor_work_guard<net::io_context::executor_type>;

// After this the system may have file descriptors again.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

std::string PeerOf(const StreamSocket& socket) {
  error_code error;
  auto endpoint = socket.remote_endpoint(error);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (error || endpoint.protocol().family() == AF_UNIX ||
      getnameinfo(endpoint.data(), static_cast<socklen_t>(endpoint.size()), host, sizeof host, port,
                  sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "local";
  }
  return HostPort(host, std::atoi(port));
}

// A listening socket on the first worker, which spreads its clients over all of them. Thread: the
// first worker's.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  Listener(ListeningSocket socket, const std::vector<std::shared_ptr<IoWorker>>& workers)
      : workers_(workers), acceptor_(workers[0]->io), pause_(workers[0]->io) {
    int protocol = socket.family() == AF_UNIX ? 0 : IPPROTO_TCP;
    acceptor_.assign(StreamProtocol(socket.family(), protocol), socket.Release());
  }

  void Accept() {
    if (!acceptor_.is_open()) return;
    IoWorker& worker = *workers_[next_];
    acceptor_.async_accept(worker.io,
                           [self = shared_from_this()](error_code error, StreamSocket socket) {
                             self->OnAccept(error, std::move(socket));
                           });
  }

  void Close() {
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
  }

 private:
  void OnAccept(error_code error, StreamSocket socket) {
    if (!acceptor_.is_open()) return;
    if (!error) {
      fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
      std::shared_ptr<IoWorker> worker = workers_[next_];
      next_ = (next_ + 1) % workers_.size();
      auto connection = std::make_shared<HttpConnection>(worker, std::move(socket), PeerOf(socket));
      net::post(worker->io, [connection] { connection->Start(); });
      return Accept();
    }
    if (error == net::error::connection_aborted) return Accept();
    spdlog::warn("Cannot accept a client: {}.", error.message());
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([self = shared_from_this()](error_code) { self->Accept(); });
  }

  const std::vector<std::shared_ptr<IoWorker>>& workers_;
  Acceptor acceptor_;
  net::steady_timer pause_;
  size_t next_ = 0;
};

}  // namespace

struct HttpServer::Impl {
  std::shared_ptr<HttpContext> context;
  std::vector<ListeningSocket> sockets;  // between Bind and Start
  std::vector<std::string> addresses;
  int port = 0;
  std::vector<std::shared_ptr<IoWorker>> workers;
  std::vector<std::shared_ptr<Listener>> listeners;
  std::vector<WorkGuard> guards;
  std::vector<std::thread> threads;
  bool has_socket_file = false;

  void RemoveSocketFile() {
    if (std::exchange(has_socket_file, false)) unlink(context->options.unix_socket.c_str());
  }
};

HttpServer::HttpServer(HttpServerOptions options, Metrics* metrics)
    : impl_(std::make_unique<Impl>()) {
  impl_->context = std::make_shared<HttpContext>(std::move(options));
  impl_->context->metrics = metrics;
  AddOperationsRoutes(impl_->context);
  if (metrics) {
    metrics->SetOpenConnections([context = impl_->context] { return context->connections.load(); });
  }
}

HttpServer::~HttpServer() {
  Shutdown(Duration::zero());
  if (impl_->context->metrics) impl_->context->metrics->SetOpenConnections(nullptr);
}

Status HttpServer::Bind() {
  const HttpServerOptions& options = impl_->context->options;
  STAFFEL_ASSIGN_OR_RETURN(impl_->context->keys, ApiKeys::Make(options.api_keys));
  impl_->port = options.port;
  // With both wildcards each family has its own socket.
  bool v6_only = options.hosts.size() > 1;
  std::vector<ListeningSocket> sockets;
  for (const std::string& host : options.hosts) {
    STAFFEL_ASSIGN_OR_RETURN(auto bound, ListenTcp(host, impl_->port, v6_only));
    for (ListeningSocket& socket : bound) sockets.push_back(std::move(socket));
  }
  if (!options.unix_socket.empty()) {
    STAFFEL_ASSIGN_OR_RETURN(auto bound, ListenUnix(options.unix_socket));
    sockets.push_back(std::move(bound));
    impl_->has_socket_file = true;
  }
  for (const ListeningSocket& socket : sockets) impl_->addresses.push_back(socket.address());
  impl_->sockets = std::move(sockets);
  RaiseOpenFileLimit();
  return absl::OkStatus();
}

int HttpServer::port() const { return impl_->port; }
std::vector<std::string> HttpServer::addresses() const { return impl_->addresses; }

void HttpServer::Start(int io_threads) {
  STAFFEL_CHECK_GE(io_threads, 1);
  STAFFEL_CHECK(impl_->threads.empty()) << "started twice";
  for (int i = 0; i < io_threads; i++) {
    auto& worker = impl_->workers.emplace_back(std::make_shared<IoWorker>(impl_->context));
    impl_->guards.push_back(net::make_work_guard(worker->io));
  }
  for (ListeningSocket& socket : impl_->sockets) {
    impl_->listeners.push_back(std::make_shared<Listener>(std::move(socket), impl_->workers));
    impl_->listeners.back()->Accept();
  }
  impl_->sockets.clear();
  for (auto& worker : impl_->workers) {
    impl_->threads.emplace_back([worker] {
      NameThread("io");
      PreferShortSlices();
      worker->io.run();
    });
  }
}

void HttpServer::Handle(std::string method, std::string path, HttpHandler handler) {
  impl_->context->routes.Handle(std::move(method), std::move(path), std::move(handler));
}

void HttpServer::ShapeErrors(std::string path, ErrorShape shape) {
  impl_->context->routes.ShapeErrors(std::move(path), shape);
}

void HttpServer::SetUnavailable(std::string reason) {
  HttpContext& context = *impl_->context;
  std::lock_guard lock(context.availability_mutex);
  context.unavailable_reason = std::move(reason);
  context.available = false;
}

void HttpServer::SetAvailable(std::function<Status()> health,
                              std::function<std::string()> degraded) {
  HttpContext& context = *impl_->context;
  std::lock_guard lock(context.availability_mutex);
  context.health = std::move(health);
  context.degraded = std::move(degraded);
  context.available = true;
}

void HttpServer::StopAccepting() {
  impl_->context->draining = true;
  impl_->sockets.clear();
  if (impl_->workers.empty()) return impl_->RemoveSocketFile();
  net::post(impl_->workers[0]->io, [listeners = impl_->listeners] {
    for (auto& listener : listeners) listener->Close();
  });
  for (auto& worker : impl_->workers) {
    net::post(worker->io, [worker] {
      auto connections = worker->connections;  // closing one takes it out
      for (HttpConnection* connection : connections) connection->CloseIfIdle();
    });
  }
  impl_->RemoveSocketFile();
}

void HttpServer::Shutdown(Duration deadline) {
  StopAccepting();
  if (impl_->threads.empty()) return;
  HttpContext& context = *impl_->context;
  {
    std::unique_lock lock(context.drain_mutex);
    context.drained.wait_for(lock, deadline, [&] { return context.connections == 0; });
  }
  for (auto& worker : impl_->workers) {
    net::post(worker->io, [worker] {
      auto connections = worker->connections;
      for (HttpConnection* connection : connections) connection->Abort();
    });
  }
  impl_->guards.clear();  // the threads end when nothing is left to do
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
  impl_->listeners.clear();
  impl_->workers.clear();
}

int HttpServer::open_connections() const { return impl_->context->connections; }

}  // namespace staffel
