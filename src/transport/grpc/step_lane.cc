#include "transport/grpc/step_lane.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "base/thread.h"

namespace staffel {
namespace {

constexpr size_t kSecretBytes = 32;  // hex digits of 128 random bits
constexpr size_t kStrangersMax = 32;
constexpr auto kGreetingTime = std::chrono::seconds(2);
constexpr size_t kReadBytes = 64 << 10;
// Plans are small and read at once: an end that takes nothing for so long hangs.
constexpr int kSendTimeoutMs = 250;

Time Now() { return std::chrono::steady_clock::now(); }

std::string RandomHex() {
  std::random_device random;
  std::string hex;
  for (size_t i = 0; i < kSecretBytes / 8; ++i) {
    char word[9];
    std::snprintf(word, sizeof word, "%08x", static_cast<unsigned>(random()));
    hex += word;
  }
  return hex;
}

Status SystemError(const char* what) {
  return absl::UnavailableError(StrCat("step lane: ", what, ": ", strerror(errno)));
}

// Of the abstract namespace: no file that could be left behind.
socklen_t SetAddress(const std::string& name, sockaddr_un& address) {
  STAFFEL_CHECK_LT(name.size(), sizeof address.sun_path);
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// Whether all of it could be sent in time.
bool SendAll(int fd, iovec* parts, int count) {
  while (count > 0) {
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    ssize_t sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return false;
      pollfd room{fd, POLLOUT, 0};
      if (poll(&room, 1, kSendTimeoutMs) <= 0) return false;
      continue;
    }
    for (; count > 0 && sent >= static_cast<ssize_t>(parts->iov_len); ++parts, --count) {
      sent -= static_cast<ssize_t>(parts->iov_len);
    }
    if (count > 0) {
      parts->iov_base = static_cast<char*>(parts->iov_base) + sent;
      parts->iov_len -= sent;
    }
  }
  return true;
}

}  // namespace

// ---- StepLane

Result<std::shared_ptr<StepLane>> StepLane::Connect(const std::string& name,
                                                    const std::string& secret) {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.ok()) return SystemError("socket");
  sockaddr_un address;
  if (name.empty() || name.size() >= sizeof address.sun_path || secret.size() != kSecretBytes) {
    return absl::InvalidArgumentError("step lane: no such name or secret can be");
  }
  const socklen_t size = SetAddress(name, address);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    return SystemError("connect");
  }
  iovec part{const_cast<char*>(secret.data()), secret.size()};
  if (!SendAll(socket.get(), &part, 1)) return SystemError("send");
  return std::make_shared<StepLane>(std::move(socket));
}

bool StepLane::Send(std::string_view frame) {
  uint32_t bytes = static_cast<uint32_t>(frame.size());
  iovec parts[] = {{&bytes, sizeof bytes}, {const_cast<char*>(frame.data()), frame.size()}};
  std::lock_guard lock(send_mutex_);
  if (frame.size() <= kFrameBytesMax && SendAll(socket_.get(), parts, 2)) return true;
  End();  // a frame may have gone in part
  return false;
}

bool StepLane::Receive(const std::function<void(std::string_view)>& take) {
  const size_t before = received_.size();
  received_.resize(before + kReadBytes);
  const ssize_t size = recv(socket_.get(), &received_[before], kReadBytes, MSG_DONTWAIT);
  received_.resize(before + std::max<ssize_t>(0, size));
  if (size == 0) return false;
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  size_t at = 0;
  while (received_.size() - at >= sizeof(uint32_t)) {
    uint32_t bytes;
    std::memcpy(&bytes, &received_[at], sizeof bytes);
    if (bytes > kFrameBytesMax) return false;
    if (received_.size() - at - sizeof bytes < bytes) break;
    take(std::string_view(received_).substr(at + sizeof bytes, bytes));
    at += sizeof bytes + bytes;
  }
  received_.erase(0, at);
  return true;
}

void StepLane::End() { shutdown(socket_.get(), SHUT_RDWR); }

// ---- StepLanes

Result<std::unique_ptr<StepLanes>> StepLanes::Listen() {
  Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listener.ok() || !wake.ok()) return SystemError("socket");
  const std::string name = StrCat("staffel-steps-", RandomHex());
  sockaddr_un address;
  const socklen_t size = SetAddress(name, address);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener.get(), kStrangersMax) != 0) {
    return SystemError("bind");
  }
  return std::unique_ptr<StepLanes>(new StepLanes(std::move(listener), std::move(wake), name));
}

StepLanes::StepLanes(Fd listener, Fd wake, std::string name)
    : listener_(std::move(listener)), wake_(std::move(wake)), name_(std::move(name)) {}

void StepLanes::Start(Events events) {
  STAFFEL_CHECK(!thread_.joinable());
  events_ = std::move(events);
  thread_ = std::thread([this] { Loop(); });
}

StepLanes::~StepLanes() {
  Stop();
  for (Connection& connection : connections_) connection.lane->End();
}

void StepLanes::Stop() {
  stopping_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

std::string StepLanes::Expect(WorkerId worker) {
  std::string secret = RandomHex();
  std::lock_guard lock(mutex_);
  expected_[secret] = worker;
  return secret;
}

void StepLanes::Forget(WorkerId worker) {
  std::lock_guard lock(mutex_);
  std::erase_if(expected_, [worker](const auto& entry) { return entry.second == worker; });
}

void StepLanes::Loop() {
  NameThread("step lanes");
  PreferShortSlices();
  std::vector<pollfd> polls;
  while (!stopping_) {
    polls.assign({{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
    bool strangers = false;
    for (const Connection& connection : connections_) {
      polls.push_back({connection.lane->fd(), POLLIN, 0});
      strangers |= !connection.worker.valid();
    }
    const int timeout_ms = strangers ? 100 : -1;
    if (poll(polls.data(), polls.size(), timeout_ms) < 0 && errno != EINTR) return;
    for (size_t i = connections_.size(); i-- > 0;) {
      if (polls[i + 2].revents == 0 || Read(connections_[i])) continue;
      const WorkerId worker = connections_[i].worker;
      connections_[i].lane->End();
      connections_.erase(connections_.begin() + static_cast<ptrdiff_t>(i));
      if (worker.valid()) events_.on_end(worker);
    }
    const Time now = Now();
    if (polls[1].revents != 0) Accept(now);
    if (strangers) DropLateStrangers(now);
  }
}

void StepLanes::Accept(Time now) {
  Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const auto strangers =
      std::count_if(connections_.begin(), connections_.end(),
                    [](const Connection& connection) { return !connection.worker.valid(); });
  if (!socket.ok() || static_cast<size_t>(strangers) >= kStrangersMax) return;
  connections_.push_back({std::make_shared<StepLane>(std::move(socket)), WorkerId(), now});
}

bool StepLanes::Greet(Connection& connection) {
  char secret[kSecretBytes];
  const int fd = connection.lane->fd();
  const ssize_t size = recv(fd, secret, sizeof secret, MSG_DONTWAIT | MSG_PEEK);
  if (size <= 0) return size < 0 && (errno == EAGAIN || errno == EINTR);
  if (static_cast<size_t>(size) < sizeof secret) return true;  // not all has come
  if (recv(fd, secret, sizeof secret, MSG_DONTWAIT) != sizeof secret) return false;
  WorkerId worker;
  {
    std::lock_guard lock(mutex_);
    const auto it = expected_.find(std::string(secret, sizeof secret));
    if (it == expected_.end()) return false;
    worker = it->second;
    expected_.erase(it);  // once
  }
  if (!events_.on_lane(worker, connection.lane)) return false;
  connection.worker = worker;
  return true;
}

bool StepLanes::Read(Connection& connection) {
  if (!connection.worker.valid()) return Greet(connection);
  return connection.lane->Receive(
      [&](std::string_view frame) { events_.on_frame(connection.worker, frame); });
}

void StepLanes::DropLateStrangers(Time now) {
  std::erase_if(connections_, [now](const Connection& connection) {
    const bool late = !connection.worker.valid() && now - connection.since > kGreetingTime;
    if (late) connection.lane->End();
    return late;
  });
}

}  // namespace staffel
