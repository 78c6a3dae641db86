// A manager, and workers played by the test: answers are given one by one, or as good workers give
// them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "cluster/manager.h"

namespace staffel::cluster {

// 4 layers, 4 heads, 2 KV heads: cuts for up to 4 ranks a stage.
inline ModelShape SmallModel() {
  return {.architecture = "llama",
          .layers = 4,
          .hidden = 256,
          .q_heads = 4,
          .kv_heads = 2,
          .head_dim = 64,
          .ffn = 1024,
          .vocab = 1024,
          .context_length = 1024,
          .layer_bytes = 50 << 20,
          .embedding_bytes = 8 << 20};
}

inline PoolConfig PoolOf(std::string name, int tp, int pp, int dp = 1) {
  PoolConfig pool;
  pool.name = std::move(name);
  pool.shape = SmallModel();
  pool.model.name = pool.name;
  pool.model.path = pool.name + ".gguf";
  pool.tensor_parallel = tp;
  pool.pipeline_parallel = pp;
  pool.data_parallel = dp;
  pool.max_model_len = 1024;
  pool.max_sequences = 4;
  return pool;
}

class ManagerTest : public ::testing::Test {
 protected:
  using Ms = std::chrono::milliseconds;

  void Start(std::vector<PoolConfig> pools, Options options = {}) {
    options.secret_key = {1, 2};
    auto manager = Manager::Create(options, std::move(pools));
    ASSERT_TRUE(manager.ok()) << manager.status();
    manager_ = *std::move(manager);
  }

  // ---- events; each keeps its actions in `actions`

  WorkerId Join(const std::string& name, Hello hello = {}) {
    const WorkerId id(next_worker_++);
    hello.name = name;
    if (hello.host.empty()) hello.host = "host-" + name;
    if (hello.machine.empty()) hello.machine = "m-" + hello.host;
    if (hello.devices.empty()) hello.devices = {{.memory_bytes = int64_t{1} << 30}};
    names_[id] = name;
    Keep(manager_->OnJoin(now, id, hello, "10.0.0.1:5"));
    return id;
  }
  void Say(WorkerId worker, const WorkerMessage& message) {
    Keep(manager_->OnMessage(now, worker, message));
  }
  void Gone(WorkerId worker, const std::string& why = "stream broken") {
    Keep(manager_->OnGone(now, {worker, absl::UnavailableError(why)}));
  }
  void StepFailed(int epoch, int rank, const Status& status) {
    Keep(manager_->OnStepFailed(now, ReplicaId(0), epoch, rank, status));
  }
  void Idle(bool idle = true) { Keep(manager_->OnReplicaIdle(now, ReplicaId(0), idle)); }
  // Lets time pass, with the ticks that the manager asks for.
  void Pass(Duration duration) {
    const Time end = now + duration;
    actions.clear();
    while (manager_->next_deadline() <= end) {
      ASSERT_GT(manager_->next_deadline(), now);
      now = manager_->next_deadline();
      Append(manager_->OnTick(now));
    }
    now = end;
  }

  // ---- answers

  Capacity GoodCapacity(const Configure& configure) {
    return {.replica = configure.replica,
            .epoch = configure.plan.epoch,
            .kv_bytes_per_block = 4096,
            .weight_bytes = 100 << 20,
            .memory_bytes = int64_t{900} << 20,
            .comm_address = StrCat("comm-", configure.rank)};
  }
  void AnswerConfigure(WorkerId worker) { Say(worker, GoodCapacity(*Last<Configure>(worker))); }
  void AnswerForm(WorkerId worker, Status status = absl::OkStatus()) {
    const Form form = *Last<Form>(worker);
    Say(worker, Formed{.replica = form.replica, .epoch = form.epoch, .status = std::move(status)});
  }
  // All of them answer Configure, then Form. Returns what the last answer caused.
  void FormAll(const std::vector<WorkerId>& workers) {
    for (WorkerId worker : workers) AnswerConfigure(worker);
    for (WorkerId worker : workers) AnswerForm(worker);
  }

  // ---- what came of it

  template <class T>
  std::vector<T> All() const {
    std::vector<T> found;
    for (const Action& action : actions) {
      if (const T* it = std::get_if<T>(&action)) found.push_back(*it);
    }
    return found;
  }
  template <class T>
  bool Is() const {
    return !All<T>().empty();
  }
  // Messages of one kind among the actions: to whom.
  template <class T>
  std::vector<std::string> To() const {
    std::vector<std::string> to;
    for (const SendTo& send : All<SendTo>()) {
      if (std::holds_alternative<T>(send.message)) to.push_back(names_.at(send.worker));
    }
    return to;
  }
  template <class T>
  const T* Last(WorkerId worker) const {
    const auto found = last_.find(worker);
    if (found == last_.end()) return nullptr;
    for (auto message = found->second.rbegin(); message != found->second.rend(); ++message) {
      if (const T* it = std::get_if<T>(&*message)) return it;
    }
    return nullptr;
  }
  std::string Logs() const {
    std::string text;
    for (const Log& log : All<Log>()) StrAppend(text, log.text, "\n");
    return text;
  }
  std::string Health() const { return std::string(manager_->Health(now, ReplicaId(0)).message()); }
  ReplicaStatus Replica0() const { return manager_->Describe(now).pools[0].replicas[0]; }

  void Keep(Actions actions_of_event) {
    actions.clear();
    Append(std::move(actions_of_event));
  }
  void Append(Actions more) {
    manager_->CheckInvariants();
    for (Action& action : more) {
      if (const SendTo* send = std::get_if<SendTo>(&action)) {
        last_[send->worker].push_back(send->message);
      }
      actions.push_back(std::move(action));
    }
  }

  Time now = Time() + std::chrono::hours(1);
  Actions actions;  // of the last event, or of the time that passed
  std::unique_ptr<Manager> manager_;
  std::map<WorkerId, std::string> names_;

 private:
  uint64_t next_worker_ = 1;
  std::map<WorkerId, std::vector<MasterMessage>> last_;
};

}  // namespace staffel::cluster
