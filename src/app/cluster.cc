#include "app/cluster.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "app/join_options.h"
#include "app/model_setup.h"
#include "base/strings.h"
#include "base/thread.h"

namespace staffel {
namespace {

// How often engines are asked whether they are idle: a better layout is taken then.
constexpr Duration kIdleCheck = std::chrono::milliseconds(200);

cluster::PoolConfig PoolOf(const ClusterModel& model) {
  const ServeOptions& options = model.options;
  cluster::PoolConfig pool;
  pool.name = model.ref.name;
  pool.shape = model.config.shape;
  pool.model = model.ref;
  pool.options = {.block_size = options.block_size,
                  .max_rows = options.max_num_batched_tokens,
                  .max_sampled_rows = LogitRows(options),
                  .max_positions = model.max_model_len,
                  .activations = kActivationTypeNames[static_cast<int>(options.activations)]};
  pool.tensor_parallel = options.tensor_parallel;
  pool.pipeline_parallel = options.pipeline_parallel;
  pool.data_parallel = options.data_parallel;
  pool.allow_degraded = options.allow_degraded;
  pool.labels = ParseLabels(options.worker_labels);
  pool.kv_blocks = options.kv_blocks;
  pool.kv_memory_bytes = options.kv_memory;
  pool.max_model_len = model.max_model_len;
  pool.max_sequences = options.max_num_seqs;
  return pool;
}

}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::Create(const ClusterOptions& options,
                                                 std::vector<ClusterModel> models,
                                                 ClusterServer* server, Callbacks callbacks) {
  std::unique_ptr<Cluster> cluster(new Cluster(std::move(models), server, std::move(callbacks)));
  cluster::Options manager;
  manager.secret_key = RandomHashKey();
  manager.worker_wait = options.worker_wait;
  manager.link_stall = options.link_dead_after;
  std::vector<cluster::PoolConfig> pools;
  for (const ClusterModel& model : cluster->models_) pools.push_back(PoolOf(model));
  STAFFEL_ASSIGN_OR_RETURN(cluster->manager_, cluster::Manager::Create(manager, std::move(pools)));
  STAFFEL_RETURN_IF_ERROR(cluster->AddReplicas());
  return cluster;
}

Cluster::Cluster(std::vector<ClusterModel> models, ClusterServer* server, Callbacks callbacks)
    : models_(std::move(models)), server_(server), callbacks_(std::move(callbacks)) {
  for (size_t i = 0; i < models_.size(); ++i) {
    served_.push_back(std::make_unique<std::atomic<bool>>(false));
  }
}

Cluster::~Cluster() { Stop(); }

// Engines exist from the beginning, and wait until their first epoch.
Status Cluster::AddReplicas() {
  for (int r = 0; r < manager_->replica_count(); ++r) {
    Replica& replica = replicas_.emplace_back();
    replica.model = manager_->pool_of(ReplicaId(r));
    replica.transport = std::make_unique<GrpcTransport>(server_, ReplicaId(r));
    const ClusterModel& model = models_[replica.model];
    EngineOptions engine =
        EngineOptionsFor(model.config, model.options, model.max_model_len, callbacks_.on_delivered);
    // Until the first epoch tells: room for one full context.
    engine.scheduler.block_count =
        (model.max_model_len + model.options.block_size - 1) / model.options.block_size;
    engine.scheduler.first_epoch = 0;  // the manager's epochs begin at 1
    engine.heal = true;
    // Also for losses that came from the manager; it knows these epochs to be over.
    engine.on_loss = [this, r](int epoch, const Status& reason) {
      Post(StepFailed{ReplicaId(r), epoch, -1, reason});
    };
    STAFFEL_ASSIGN_OR_RETURN(replica.engine,
                             Engine::Create(std::move(engine), replica.transport.get(), &clock_));
    replica.engine->Pause(absl::UnavailableError("no workers have joined yet"));
  }
  return absl::OkStatus();
}

void Cluster::Start() {
  for (Replica& replica : replicas_) replica.engine->Start();
  thread_ = std::thread([this] { Run(); });
  server_->Start(this);
}

void Cluster::Stop() {
  {
    std::lock_guard lock(inbox_mutex_);
    stop_ = true;
    inbox_changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  for (Replica& replica : replicas_) replica.engine->Stop();
}

std::vector<Engine*> Cluster::engines(int model) const {
  std::vector<Engine*> engines;
  for (const Replica& replica : replicas_) {
    if (replica.model == model) engines.push_back(replica.engine.get());
  }
  return engines;
}

Status Cluster::health(int model) const {
  const Time now = clock_.Now();
  Status first;
  std::lock_guard lock(manager_mutex_);
  for (size_t r = 0; r < replicas_.size(); ++r) {
    if (replicas_[r].model != model) continue;
    Status status = manager_->Health(now, ReplicaId(static_cast<int>(r)));
    if (status.ok()) status = replicas_[r].engine->health();
    if (status.ok()) return status;
    if (first.ok()) first = status;
  }
  return first;
}

std::string Cluster::degraded(int model) const {
  const Time now = clock_.Now();
  std::string text;
  std::lock_guard lock(manager_mutex_);
  for (size_t r = 0; r < replicas_.size(); ++r) {
    if (replicas_[r].model != model) continue;
    const std::string more = manager_->Degraded(now, ReplicaId(static_cast<int>(r)));
    StrAppend(text, text.empty() || more.empty() ? "" : "; ", more);
  }
  return text;
}

bool Cluster::has_served(int model) const { return *served_[model]; }

cluster::Snapshot Cluster::Describe() const {
  const Time now = clock_.Now();
  std::lock_guard lock(manager_mutex_);
  cluster::Snapshot snapshot = manager_->Describe(now);
  for (cluster::PoolStatus& pool : snapshot.pools) {
    for (cluster::ReplicaStatus& replica : pool.replicas) {
      for (cluster::RankStatus& rank : replica.ranks) {
        rank.busy_share = busy_shares_.Share(rank.worker);
      }
    }
  }
  return snapshot;
}

void Cluster::OnJoin(WorkerId worker, const Hello& hello, const std::string& peer_address) {
  Post(Joined{worker, hello, peer_address});
}

void Cluster::OnMessage(WorkerId worker, WorkerMessage message) {
  auto* outcome = std::get_if<StepOutcome>(&message);
  if (outcome == nullptr) return Post(Said{worker, std::move(message)});
  Route route;
  {
    std::shared_lock lock(routes_mutex_);
    const auto it = routes_.find(worker);
    if (it != routes_.end() && it->second.epoch == outcome->epoch) route = it->second;
  }
  if (route.epoch == 0) {
    // The epoch is over; a failure may tell who ended it.
    if (!outcome->status.ok()) Post(Said{worker, std::move(message)});
    return;
  }
  if (!outcome->status.ok()) {
    return Post(StepFailed{ReplicaId(route.replica), route.epoch, route.rank, outcome->status});
  }
  replicas_[route.replica].transport->OnOutcome(worker, std::move(*outcome));
}

void Cluster::OnGone(WorkerGone gone) { Post(std::move(gone)); }

void Cluster::Post(Event event) {
  std::lock_guard lock(inbox_mutex_);
  inbox_.push_back(std::move(event));
  inbox_changed_.notify_one();
}

void Cluster::Run() {
  NameThread("cluster");
  std::deque<Event> events;
  while (true) {
    Time deadline = clock_.Now() + kIdleCheck;
    {
      std::lock_guard lock(manager_mutex_);
      deadline = std::min(deadline, manager_->next_deadline());
    }
    {
      std::unique_lock lock(inbox_mutex_);
      inbox_changed_.wait_until(lock, deadline, [&] { return stop_ || !inbox_.empty(); });
      if (stop_) return;
      std::swap(events, inbox_);
    }
    const Time now = clock_.Now();
    for (Event& event : events) Carry(Handle(now, event));
    events.clear();
    ReportIdle(now);
    cluster::Actions due;
    {
      std::lock_guard lock(manager_mutex_);
      if (now >= manager_->next_deadline()) due = manager_->OnTick(now);
    }
    Carry(std::move(due));
  }
}

cluster::Actions Cluster::Handle(Time now, Event& event) {
  std::lock_guard lock(manager_mutex_);
  if (auto* joined = std::get_if<Joined>(&event)) {
    return manager_->OnJoin(now, joined->worker, joined->hello, joined->address);
  }
  if (auto* said = std::get_if<Said>(&event)) {
    if (const auto* heartbeat = std::get_if<Heartbeat>(&said->message)) {
      busy_shares_.Hear(now, said->worker, *heartbeat);
    }
    return manager_->OnMessage(now, said->worker, said->message);
  }
  if (auto* gone = std::get_if<WorkerGone>(&event)) {
    busy_shares_.Forget(gone->worker);
    return manager_->OnGone(now, *gone);
  }
  const auto& failed = std::get<StepFailed>(event);
  return manager_->OnStepFailed(now, failed.replica, failed.epoch, failed.rank, failed.reason);
}

void Cluster::ReportIdle(Time now) {
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Replica& replica = replicas_[r];
    const EngineStats stats = replica.engine->stats();
    const bool idle = stats.running + stats.waiting == 0;
    if (idle == replica.idle) continue;
    replica.idle = idle;
    cluster::Actions actions;
    {
      std::lock_guard lock(manager_mutex_);
      actions = manager_->OnReplicaIdle(now, ReplicaId(static_cast<int>(r)), idle);
    }
    Carry(std::move(actions));
  }
}

void Cluster::Carry(cluster::Actions actions) {
  for (cluster::Action& action : actions) {
    std::visit([this](auto& a) { Carry(a); }, action);
  }
}

void Cluster::Carry(cluster::SendTo& action) { server_->Send(action.worker, action.message); }

void Cluster::Carry(cluster::Disconnect& action) {
  server_->Disconnect(action.worker, action.reason);
}

void Cluster::Carry(cluster::ReplicaServing& action) {
  Replica& replica = replicas_[action.replica.value];
  {
    std::unique_lock lock(routes_mutex_);
    for (size_t rank = 0; rank < action.workers.size(); ++rank) {
      routes_[action.workers[rank]] = {action.replica.value, static_cast<int>(rank), action.epoch};
    }
  }
  replica.transport->Bind(action.epoch, action.workers, action.plan.tensor_groups.back().front());
  replica.engine->Resume({.epoch = action.epoch,
                          .block_count = action.block_count,
                          .stages = static_cast<int>(action.plan.tensor_groups.size()),
                          .ranks = static_cast<int>(action.plan.ranks.size())});
  *served_[replica.model] = true;
  callbacks_.on_change();
}

void Cluster::Carry(cluster::ReplicaLost& action) {
  Replica& replica = replicas_[action.replica.value];
  {
    std::unique_lock lock(routes_mutex_);
    absl::erase_if(routes_,
                   [&](const auto& entry) { return entry.second.replica == action.replica.value; });
  }
  replica.transport->Unbind();
  if (action.planned) {
    replica.engine->Pause(action.reason);
  } else {
    replica.engine->ReportLoss(action.reason);
  }
  callbacks_.on_change();
}

void Cluster::Carry(cluster::ReplicaGaveUp& action) {
  replicas_[action.replica.value].engine->FailRequests(action.reason);
}

void Cluster::Carry(cluster::Log& action) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::trace, spdlog::level::debug,
                                                   spdlog::level::info,  spdlog::level::warn,
                                                   spdlog::level::err,   spdlog::level::off};
  spdlog::log(kLevels[static_cast<int>(action.level)], "{}", action.text);
}

}  // namespace staffel
