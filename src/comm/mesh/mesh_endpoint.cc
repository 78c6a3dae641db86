#include "comm/mesh/mesh_endpoint.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "comm/mesh/acceptor.h"
#include "comm/mesh/connector.h"
#include "comm/mesh/mesh_communicator.h"
#include "comm/mesh/shm_link.h"
#include "comm/mesh/socket_address.h"
#include "comm/mesh/tcp_link.h"
#include "comm/mesh/tcp_options.h"

namespace staffel {
namespace {

using std::chrono::steady_clock;

constexpr int kBacklog = 128;

int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

// The ranks that `rank` exchanges data with: its group, and the same member of the stages beside.
Result<std::set<int>> PeersOf(const GroupSpec& spec, std::vector<int>& group) {
  const int rank_count = static_cast<int>(spec.addresses.size());
  const int group_count = static_cast<int>(spec.tensor_groups.size());
  int stage = -1, member = -1;
  std::set<int> all;
  for (int g = 0; g < group_count; ++g) {
    for (size_t m = 0; m < spec.tensor_groups[g].size(); ++m) {
      const int rank = spec.tensor_groups[g][m];
      if (rank < 0 || rank >= rank_count || !all.insert(rank).second) {
        return absl::InvalidArgumentError(StrCat("rank ", rank, " of the tensor groups is not one ",
                                                 "of ", rank_count, " ranks, or in two groups"));
      }
      if (rank == spec.rank) {
        stage = g;
        member = static_cast<int>(m);
      }
    }
  }
  if (stage < 0 || static_cast<int>(all.size()) != rank_count ||
      spec.machines.size() != spec.addresses.size()) {
    return absl::InvalidArgumentError(StrCat("a group of ", all.size(), " ranks with ", rank_count,
                                             " addresses and ", spec.machines.size(),
                                             " machines cannot be formed by rank ", spec.rank));
  }
  group = spec.tensor_groups[stage];
  std::set<int> peers(group.begin(), group.end());
  for (int g : {stage - 1, stage + 1}) {
    if (g < 0 || g >= group_count) continue;
    if (member < static_cast<int>(spec.tensor_groups[g].size())) {
      peers.insert(spec.tensor_groups[g][member]);
    }
  }
  peers.erase(spec.rank);
  return peers;
}

class MeshEndpoint final : public CommEndpoint {
 public:
  MeshEndpoint(MeshOptions options, EndpointAddress own, Fd tcp_listener, Fd unix_listener)
      : options_(std::move(options)),
        own_(std::move(own)),
        address_(FormatEndpoint(own_)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        acceptor_(std::move(tcp_listener), std::move(unix_listener),
                  {options_.greeting_timeout, options_.parking_timeout,
                   static_cast<size_t>(options_.greeting_max)}) {}

  const std::string& address() const override { return address_; }

  Result<std::unique_ptr<Communicator>> Form(const GroupSpec& spec, Duration timeout) override {
    const Time begin = steady_clock::now();
    Forming forming;
    STAFFEL_ASSIGN_OR_RETURN(forming.missing, PeersOf(spec, forming.group));
    forming.doorbell = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!forming.doorbell.ok()) {
      return absl::UnavailableError(StrCat("no event descriptor: ", strerror(errno)));
    }
    STAFFEL_RETURN_IF_ERROR(MakeConnectors(spec, forming));
    {
      std::lock_guard lock(mutex_);
      if (is_forming_) return absl::FailedPreconditionError("two epochs are formed at once");
      is_forming_ = true;
    }
    FormingEpoch epoch{.replica = spec.replica,
                       .epoch = spec.epoch,
                       .rank = spec.rank,
                       .secret = spec.secret,
                       .expected = {forming.missing.upper_bound(spec.rank), forming.missing.end()},
                       .doorbell = forming.doorbell.get(),
                       .announce = wake_.get()};
    acceptor_.Begin(std::move(epoch));
    Status status = WaitForAll(spec, forming, begin, timeout);
    acceptor_.End();
    {
      std::lock_guard lock(mutex_);
      is_forming_ = false;
    }
    STAFFEL_RETURN_IF_ERROR(status);
    return Finish(spec, std::move(forming));
  }

  void AbortForming(int replica, int epoch) override {
    {
      std::lock_guard lock(mutex_);
      int& aborted = aborted_epochs_.try_emplace(replica, epoch).first->second;
      aborted = std::max(aborted, epoch);
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
  }

 private:
  struct Forming {
    std::vector<int> group;
    std::set<int> missing;
    Fd doorbell;
    std::vector<std::unique_ptr<Connector>> connectors;
    std::map<int, std::unique_ptr<Link>> links;
  };

  Status MakeConnectors(const GroupSpec& spec, Forming& forming) const {
    for (int peer : forming.missing) {
      if (peer > spec.rank) break;
      ConnectorParts parts{.replica = spec.replica,
                           .epoch = spec.epoch,
                           .rank = spec.rank,
                           .peer = peer,
                           .shared_memory = options_.shared_memory &&
                                            spec.machines[peer] == spec.machines[spec.rank],
                           .secret = spec.secret,
                           .ring_bytes = options_.ring_bytes,
                           .doorbell = forming.doorbell.get()};
      STAFFEL_ASSIGN_OR_RETURN(parts.address, ParseEndpoint(spec.addresses[peer]));
      TakeZone(parts.address.tcp, own_.tcp);
      forming.connectors.push_back(std::make_unique<Connector>(std::move(parts)));
    }
    return absl::OkStatus();
  }

  Status WaitForAll(const GroupSpec& spec, Forming& forming, Time begin, Duration timeout) {
    std::vector<pollfd> polls;
    while (true) {
      const Time now = steady_clock::now();
      for (auto& connector : forming.connectors) {
        if (!forming.missing.contains(connector->peer())) continue;
        if (std::optional<Arrival> arrival = connector->Advance(now)) {
          Add(forming, *std::move(arrival));
        }
      }
      for (Arrival& arrival : acceptor_.Take()) Add(forming, std::move(arrival));
      {
        std::lock_guard lock(mutex_);
        const auto aborted = aborted_epochs_.find(spec.replica);
        if (aborted != aborted_epochs_.end() && aborted->second >= spec.epoch) {
          return absl::AbortedError(StrCat("epoch ", spec.epoch, " was aborted"));
        }
      }
      if (forming.missing.empty()) return absl::OkStatus();
      if (now - begin >= timeout) return TimedOut(spec, forming, timeout);
      polls.assign(1, {wake_.get(), POLLIN, 0});
      Time next = begin + timeout;
      for (auto& connector : forming.connectors) {
        if (!forming.missing.contains(connector->peer())) continue;
        polls.push_back({connector->fd(), connector->events(), 0});
        next = std::min(next, connector->wake_at());
      }
      const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - steady_clock::now());
      poll(polls.data(), polls.size(),
           static_cast<int>(std::clamp<int64_t>(wait.count(), 0, 60000)));
      uint64_t count;
      [[maybe_unused]] const ssize_t size = read(wake_.get(), &count, sizeof count);
    }
  }

  // A peer that connects again has given up its older connection.
  static void Add(Forming& forming, Arrival arrival) {
    forming.missing.erase(arrival.rank);
    forming.links[arrival.rank] =
        arrival.segment != nullptr
            ? MakeShmLink(std::move(arrival.segment), arrival.side, std::move(arrival.socket),
                          std::move(arrival.peer_doorbell))
            : MakeTcpLink(std::move(arrival.socket));
  }

  Status TimedOut(const GroupSpec& spec, const Forming& forming, Duration timeout) {
    std::string missing;
    for (int rank : forming.missing) {
      std::string remark = acceptor_.Remark(rank);
      if (remark.empty()) remark = "has not connected";
      for (const auto& connector : forming.connectors) {
        if (connector->peer() == rank) remark = connector->remark();
      }
      StrAppend(missing, missing.empty() ? "" : ", ", "rank ", rank, " at ", spec.addresses[rank],
                " (", remark, ")");
    }
    return absl::DeadlineExceededError(
        StrCat("rank ", spec.rank, " has not formed epoch ", spec.epoch, " within ",
               std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count(),
               " ms: it misses ", missing));
  }

  Result<std::unique_ptr<Communicator>> Finish(const GroupSpec& spec, Forming forming) const {
    const int here = static_cast<int>(
        std::count(spec.machines.begin(), spec.machines.end(), spec.machines[spec.rank]));
    return MakeMeshCommunicator({.rank = spec.rank,
                                 .group = std::move(forming.group),
                                 .links = std::move(forming.links),
                                 .doorbell = std::move(forming.doorbell),
                                 .spin_us = options_.spin_us,
                                 .crowded = here > UsableCores()});
  }

  const MeshOptions options_;
  const EndpointAddress own_;
  const std::string address_;
  const Fd wake_;  // of Form

  std::mutex mutex_;
  // Guarded by mutex_.
  bool is_forming_ = false;
  std::map<int, int> aborted_epochs_;  // by replica: its latest

  Acceptor acceptor_;
};

// A listening socket at `address`, whose port becomes the one that it has got.
Result<Fd> Listen(SocketAddress& address) {
  Fd fd(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.ok()) return absl::UnavailableError(StrCat("no socket: ", strerror(errno)));
  if (address.family() != AF_UNIX) {
    const int one = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    SetTcpOptions(fd.get());
  }
  if (bind(fd.get(), address.get(), address.size) != 0 || listen(fd.get(), kBacklog) != 0) {
    return absl::UnavailableError(strerror(errno));
  }
  address.size = sizeof address.storage;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.size);
  return fd;
}

std::string UniqueName() {
  std::string name = StrCat("staffel-mesh-", getpid(), "-");
  for (uint8_t byte : RandomNonce()) {
    StrAppend(name, "0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]);
  }
  return name;
}

}  // namespace

Result<std::unique_ptr<CommEndpoint>> MakeMeshEndpoint(const MeshOptions& options) {
  if (options.ring_bytes % 4096 != 0 || options.ring_bytes < kLinkBufferBytesMin) {
    return absl::InvalidArgumentError(StrCat("a ring of ", options.ring_bytes,
                                             " bytes: it must be a multiple of 4096 and at ",
                                             "least ", kLinkBufferBytesMin));
  }
  EndpointAddress own;
  Fd tcp_listener;
  Status status;
  for (int port = options.port; port <= std::max(options.port, options.port_last); ++port) {
    STAFFEL_ASSIGN_OR_RETURN(own.tcp, ResolveHost(options.host, static_cast<uint16_t>(port)));
    Result<Fd> listener = Listen(own.tcp);
    status = listener.status();
    if (!status.ok()) continue;
    tcp_listener = *std::move(listener);
    break;
  }
  if (!tcp_listener.ok()) {
    return absl::UnavailableError(StrCat("cannot listen for other ranks at ", HostAndPort(own.tcp),
                                         ": ", std::string(status.message())));
  }
  Fd unix_listener;
  if (options.shared_memory) {
    own.unix_name = UniqueName();
    SocketAddress address = UnixAddress(own.unix_name);
    STAFFEL_ASSIGN_OR_RETURN(unix_listener, Listen(address));
  }
  return std::make_unique<MeshEndpoint>(options, std::move(own), std::move(tcp_listener),
                                        std::move(unix_listener));
}

std::string MachineName() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  std::string name = boot_id;
  for (const char* kind : {"ipc", "pid", "net"}) {
    struct stat status {};
    if (stat(StrCat("/proc/self/ns/", kind).c_str(), &status) == 0) {
      StrAppend(name, "/", status.st_ino);
    }
  }
  return name;
}

}  // namespace staffel
