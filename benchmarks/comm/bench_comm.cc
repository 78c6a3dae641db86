// Collectives and messages between processes of one machine.
//   bench_comm [ranks=2] [rounds=5] [spin_us=40]
// For shared memory and TCP on loopback: all-reduce by size, and half the round trip of a message
// (two ranks). Median of a round's calls; of the rounds, the best median and the middle one: other
// load on the machine only ever adds.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "comm/mesh/mesh_endpoint.h"

namespace staffel {
namespace {

constexpr int kRanksMax = 16;

struct Size {
  size_t bytes;
  int calls;
};
constexpr Size kSizes[] = {{256, 2000},     {1 << 10, 2000},  {4 << 10, 2000}, {16 << 10, 1000},
                           {64 << 10, 600}, {256 << 10, 200}, {1 << 20, 60},   {4 << 20, 20}};

struct Shared {
  std::atomic<int> ready{0};
  char addresses[kRanksMax][256];
};

struct Way {
  const char* name;
  const char* host;
  bool shared_memory;
};
constexpr Way kWays[] = {{"shm", "127.0.0.1", true}, {"tcp", "127.0.0.1", false}};

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

std::unique_ptr<Communicator> Form(CommEndpoint& endpoint, Shared& shared, int rank, int ranks,
                                   bool stages) {
  GroupSpec spec;
  spec.epoch = stages ? 2 : 1;
  spec.rank = rank;
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  spec.tensor_groups =
      stages ? std::vector<std::vector<int>>{{0}, {1}} : std::vector<std::vector<int>>{all};
  for (int i = 0; i < ranks; ++i) spec.addresses.push_back(shared.addresses[i]);
  spec.machines.assign(ranks, "here");
  auto formed = endpoint.Form(spec, std::chrono::seconds(20));
  Check(formed.status());
  return *std::move(formed);
}

template <class Call>
void Time(const char* what, int rounds, int rank, double share, Call call) {
  for (const Size& size : kSizes) {
    std::vector<float> data(size.bytes / sizeof(float), 1.0f);
    std::vector<double> medians;
    for (int round = 0; round < rounds; ++round) {
      std::vector<double> times;
      for (int i = 0; i < size.calls; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        call(absl::MakeSpan(data));
        const auto end = std::chrono::steady_clock::now();
        times.push_back(std::chrono::duration<double, std::micro>(end - begin).count() * share);
      }
      std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
      medians.push_back(times[times.size() / 2]);
    }
    std::sort(medians.begin(), medians.end());
    if (rank == 0) {
      std::printf("%-24s %8zu %10.2f %10.2f\n", what, size.bytes, medians[0],
                  medians[medians.size() / 2]);
      std::fflush(stdout);
    }
  }
}

// Rank and core go together, as far as there are cores. After forming: a process with
// one core takes the ranks of its machine for crowded.
void Pin(int rank) {
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(rank % sysconf(_SC_NPROCESSORS_ONLN), &core);
  sched_setaffinity(0, sizeof core, &core);
}

void RunRank(const Way& way, Shared& shared, int rank, int ranks, int rounds, int spin_us) {
  cpu_set_t all_cores;
  sched_getaffinity(0, sizeof all_cores, &all_cores);
  MeshOptions options;
  options.host = way.host;
  options.shared_memory = way.shared_memory;
  options.spin_us = spin_us;
  auto endpoint = MakeMeshEndpoint(options);
  Check(endpoint.status());
  std::strncpy(shared.addresses[rank], (*endpoint)->address().c_str(), 255);
  ++shared.ready;
  while (shared.ready < ranks) usleep(1000);
  {
    auto comm = Form(**endpoint, shared, rank, ranks, false);
    Pin(rank);
    const std::string what = std::string(way.name) + " all-reduce, " + std::to_string(ranks);
    Time(what.c_str(), rounds, rank, 1.0,
         [&](absl::Span<float> data) { Check(comm->AllReduceSum(data)); });
  }
  if (ranks != 2) return;
  sched_setaffinity(0, sizeof all_cores, &all_cores);
  auto comm = Form(**endpoint, shared, rank, ranks, true);
  Pin(rank);
  const std::string what = std::string(way.name) + " send and receive";
  Time(what.c_str(), rounds, rank, 0.5, [&](absl::Span<float> data) {
    if (rank == 0) Check(comm->Send(1, data));
    Check(comm->Recv(1 - rank, data));
    if (rank == 1) Check(comm->Send(0, data));
  });
}

}  // namespace
}  // namespace staffel

int main(int argc, char** argv) {
  const auto argument = [&](int i, int otherwise) { return argc > i ? atoi(argv[i]) : otherwise; };
  const int ranks = std::clamp(argument(1, 2), 2, staffel::kRanksMax);
  const int rounds = std::max(1, argument(2, 5)), spin_us = argument(3, 40);
  std::printf("%-24s %8s %10s %10s\n", "call", "bytes", "best us", "middle us");
  for (const staffel::Way& way : staffel::kWays) {
    void* memory = mmap(nullptr, sizeof(staffel::Shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    auto* shared = new (memory) staffel::Shared;
    std::fflush(stdout);
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        staffel::RunRank(way, *shared, rank, ranks, rounds, spin_us);
        return 0;
      }
      children.push_back(pid);
    }
    for (pid_t child : children) waitpid(child, nullptr, 0);
    munmap(memory, sizeof(staffel::Shared));
  }
}
