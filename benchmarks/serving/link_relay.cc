// A link between two network namespaces with a delay and a rate, for kernels without netem: a TAP
// device named "wan" on either side, and this program between them. Needs a core of its own to keep
// its times; adds about 50 us each way.
//
// usage: link_relay NAMESPACE_A ADDRESS_A/24 NAMESPACE_B ADDRESS_B/24 DELAY_US RATE_MBIT
//   DELAY_US: one way. RATE_MBIT: each direction, 0: as fast as it goes. Runs until it is ended.
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

constexpr size_t kQueueMax = 4096;  // packets; further ones are dropped, as a switch would
constexpr int kReadsPerTurn = 16;
constexpr size_t kPacketMax = 70000;  // a 64 KiB segment that offload passes whole, and headers

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

[[noreturn]] void Die(const std::string& what) {
  std::perror(what.c_str());
  std::exit(1);
}

// Leaves this process in the namespace; the descriptor keeps belonging to it.
int OpenTap(const std::string& network_namespace, const std::string& address) {
  const int file = open(("/run/netns/" + network_namespace).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 || setns(file, CLONE_NEWNET) != 0) Die(network_namespace);
  close(file);
  const int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (tap < 0) Die("/dev/net/tun");
  ifreq request{};
  std::strcpy(request.ifr_name, "wan");
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (ioctl(tap, TUNSETIFF, &request) != 0) Die("TUNSETIFF");
  // Checksums and segmentation are left to the other side, as between virtual machines.
  if (ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) Die("TUNSETOFFLOAD");
  const std::string command = "ip addr add " + address + " dev wan && ip link set wan up";
  if (std::system(command.c_str()) != 0) Die(command);
  return tap;
}

struct Packet {
  int64_t due_ns;
  std::vector<char> bytes;
};

class Direction {
 public:
  Direction(int from, int to, double delay_us, double rate_mbit)
      : from_(from),
        to_(to),
        delay_ns_(static_cast<int64_t>(delay_us * 1e3)),
        ns_per_byte_(rate_mbit > 0 ? 8e3 / rate_mbit : 0) {}

  // Hands over what is due; when the next packet is.
  int64_t Deliver(int64_t now) {
    while (!queue_.empty() && queue_.front().due_ns <= now) {
      const std::vector<char>& bytes = queue_.front().bytes;
      // A full device drops, and the protocols above see to it.
      [[maybe_unused]] const ssize_t written = write(to_, bytes.data(), bytes.size());
      queue_.pop_front();
    }
    return queue_.empty() ? INT64_MAX : queue_.front().due_ns;
  }

  void Take() {
    for (int i = 0; i < kReadsPerTurn; ++i) {
      const ssize_t size = read(from_, buffer_.data(), buffer_.size());
      if (size <= 0) return;
      if (queue_.size() >= kQueueMax) continue;
      free_at_ns_ = std::max(free_at_ns_, Now()) +
                    static_cast<int64_t>(static_cast<double>(size) * ns_per_byte_);
      queue_.push_back({free_at_ns_ + delay_ns_, {buffer_.begin(), buffer_.begin() + size}});
    }
  }

 private:
  const int from_, to_;
  const int64_t delay_ns_;
  const double ns_per_byte_;
  int64_t free_at_ns_ = 0;  // when the wire has sent all that was given to it
  std::deque<Packet> queue_;
  std::vector<char> buffer_ = std::vector<char>(kPacketMax);
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr,
                 "usage: link_relay NAMESPACE_A ADDRESS_A/24 NAMESPACE_B ADDRESS_B/24 "
                 "DELAY_US RATE_MBIT\n");
    return 2;
  }
  prctl(PR_SET_TIMERSLACK, 1);
  const int taps[2] = {OpenTap(argv[1], argv[2]), OpenTap(argv[3], argv[4])};
  const double delay_us = std::atof(argv[5]), rate_mbit = std::atof(argv[6]);
  std::array<Direction, 2> directions = {Direction(taps[0], taps[1], delay_us, rate_mbit),
                                         Direction(taps[1], taps[0], delay_us, rate_mbit)};
  std::puts("up");
  std::fflush(stdout);
  while (true) {
    int64_t due = INT64_MAX;
    for (Direction& direction : directions) due = std::min(due, direction.Deliver(Now()));
    const int64_t wait =
        std::clamp<int64_t>(due == INT64_MAX ? 1000000000 : due - Now(), 0, 1000000000);
    const timespec timeout{wait / 1000000000, wait % 1000000000};
    pollfd polled[2] = {{taps[0], POLLIN, 0}, {taps[1], POLLIN, 0}};
    ppoll(polled, 2, &timeout, nullptr);
    for (Direction& direction : directions) direction.Take();
  }
}
