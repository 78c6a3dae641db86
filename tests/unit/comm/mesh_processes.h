// Ranks of one tensor group as child processes, told what to do through pipes. The test itself must
// have no other threads while it makes them.
#pragma once

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/comm/mesh_world.h"

namespace staffel {

class MeshProcesses {
 public:
  using Body = std::function<std::string(int rank, Communicator& comm)>;

  MeshProcesses(int count, const MeshWay& way, const Body& body) {
    for (int rank = 0; rank < count; ++rank) {
      int down[2], up[2];
      if (pipe(down) != 0 || pipe(up) != 0) abort();
      const pid_t pid = fork();
      if (pid == 0) {
        for (const Child& older : children_) {
          close(older.commands);
          close(older.reports);
        }
        close(down[1]);
        close(up[0]);
        RunChild(rank, count, way, body, down[0], up[1]);
        _exit(0);
      }
      close(down[0]);
      close(up[1]);
      children_.push_back({pid, down[1], up[0]});
    }
    std::string addresses;
    for (const Child& child : children_) addresses += ReadLine(child.reports) + "\n";
    for (const Child& child : children_) Write(child.commands, addresses);
  }
  ~MeshProcesses() {
    for (const Child& child : children_) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
      close(child.commands);
      close(child.reports);
    }
  }

  bool WaitUntilFormed() {
    return std::all_of(children_.begin(), children_.end(),
                       [](const Child& child) { return ReadLine(child.reports) == "formed"; });
  }
  void Signal(int rank, int signal) { kill(children_[rank].pid, signal); }
  void Abort(int rank) { Write(children_[rank].commands, "a"); }
  // What the body returned; empty if there is nothing within 10 s.
  std::string Result(int rank) { return ReadLine(children_[rank].reports); }

 private:
  struct Child {
    pid_t pid;
    int commands, reports;
  };

  static void Write(int fd, const std::string& text) {
    if (write(fd, text.data(), text.size()) < 0) perror("pipe");
  }
  static std::string ReadLine(int fd) {
    std::string line;
    char c;
    pollfd readable{fd, POLLIN, 0};
    while (poll(&readable, 1, 10000) > 0 && read(fd, &c, 1) == 1 && c != '\n') line += c;
    return line;
  }

  static void RunChild(int rank, int count, const MeshWay& way, const Body& body, int commands,
                       int reports) {
    Result_<CommEndpoint> endpoint = MakeMeshEndpoint(OptionsFor(way));
    if (!endpoint.ok()) return Write(reports, endpoint.status().ToString() + "\n");
    Write(reports, (*endpoint)->address() + "\n");
    GroupSpec spec;
    spec.epoch = 1;
    spec.rank = rank;
    spec.tensor_groups.emplace_back(count);
    std::iota(spec.tensor_groups[0].begin(), spec.tensor_groups[0].end(), 0);
    for (int i = 0; i < count; ++i) spec.addresses.push_back(ReadLine(commands));
    spec.machines.assign(count, "here");
    Result_<Communicator> comm = (*endpoint)->Form(spec, std::chrono::seconds(10));
    if (!comm.ok()) return Write(reports, comm.status().ToString() + "\n");
    Write(reports, "formed\n");
    std::thread([commands, communicator = comm->get()] {
      char command;
      if (read(commands, &command, 1) == 1) communicator->Abort();
    }).detach();
    Write(reports, body(rank, **comm) + "\n");
  }
  template <class T>
  using Result_ = staffel::Result<std::unique_ptr<T>>;

  std::vector<Child> children_;
};

}  // namespace staffel
