#include "app/worker_node.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "base/available_memory.h"
#include "base/check.h"
#include "base/option_values.h"
#include "base/strings.h"
#include "base/thread.h"

namespace staffel {
namespace {

constexpr Duration kProgressInterval = std::chrono::milliseconds(100);
constexpr int kEveryEpoch = -1;
constexpr Duration kShareWait = std::chrono::seconds(1);
constexpr Duration kShareLook = std::chrono::milliseconds(10);

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

struct EpochName {
  ReplicaId replica;
  int epoch = 0;
};

// The epoch whose work a message is; invalid for those that end work.
EpochName EpochOf(const MasterMessage& message) {
  if (const auto* configure = std::get_if<Configure>(&message)) {
    return {configure->replica, configure->plan.epoch};
  }
  if (const auto* form = std::get_if<Form>(&message)) return {form->replica, form->epoch};
  if (const auto* step = std::get_if<Step>(&message)) return {step->replica, step->plan.epoch};
  return {};
}

// Where the address space is limited, what the system refuses shows as an exception, of an
// allocation or of a thread's start. It is an answer for the master like any other.
template <class Work>
Status CatchNoMemory(const Work& work) {
  const char* what = "";
  try {
    return work();
  } catch (const std::bad_alloc&) {
    what = "an allocation";
  } catch (const std::system_error&) {
    what = "the start of a thread";
  }
  return absl::ResourceExhaustedError(
      StrCat("the system has refused memory for ", what, "; ", HumanBytes(AvailableMemoryBytes()),
             " are left to this worker; raise its limit (ulimit -v, cgroup) or give it a smaller "
             "part"));
}

}  // namespace

WorkerNode::WorkerNode(WorkerNodeOptions options, std::unique_ptr<Backend> backend,
                       MakeEndpoint make_endpoint, const Clock& clock)
    : options_(std::move(options)),
      backend_(std::move(backend)),
      make_endpoint_(std::move(make_endpoint)),
      clock_(clock),
      store_(options_.models),
      thread_([this] { Work(); }) {}

WorkerNode::~WorkerNode() {
  {
    std::lock_guard lock(mutex_);
    STAFFEL_CHECK(link_ == nullptr) << "a node ends after its connection";
    stop_ = true;
  }
  waiting_.fetch_add(1, std::memory_order_release);
  changed_.notify_all();
  thread_.join();
}

void WorkerNode::Connect(MasterLink* link) {
  std::lock_guard lock(mutex_);
  STAFFEL_CHECK(link_ == nullptr) << "one connection at a time";
  link_ = link;
  ++connection_;
}

void WorkerNode::Disconnect() {
  std::unique_lock lock(mutex_);
  EndWork(ReplicaId(), kEveryEpoch);
  link_ = nullptr;
  changed_.wait(lock, [this] { return !running_; });
}

void WorkerNode::OnMessage(MasterMessage message) {
  if (std::holds_alternative<Welcome>(message)) return;
  {
    std::lock_guard lock(mutex_);
    if (const auto* abort = std::get_if<Abort>(&message)) {
      EndWork(abort->replica, abort->epoch);
    } else if (const auto* release = std::get_if<Release>(&message)) {
      EndWork(release->replica, kEveryEpoch);
    } else if (std::holds_alternative<Configure>(message)) {
      EndWork(ReplicaId(), kEveryEpoch);  // a worker is a rank of one epoch
    }
    queue_.push_back(std::move(message));
  }
  // After the lock is free: a spinning step thread takes it at once.
  waiting_.fetch_add(1, std::memory_order_release);
  changed_.notify_all();
}

void WorkerNode::OnGone(const Status& reason, bool /*permanent*/) {
  Abort abort;
  {
    std::lock_guard lock(mutex_);
    EndWork(ReplicaId(), kEveryEpoch);
    if (!assignment_) return;
    abort.replica = assignment_->replica;
    abort.epoch = assignment_->epoch;
    abort.reason = std::string(reason.message());
    queue_.push_back(std::move(abort));
  }
  waiting_.fetch_add(1, std::memory_order_release);
  changed_.notify_all();
}

// With mutex_ held. Drops what waits for the epoch and ends what runs of it. Invalid replica: of
// all; kEveryEpoch: of all of the replica.
void WorkerNode::EndWork(ReplicaId replica, int epoch) {
  const auto concerned = [&](const EpochName& name) {
    return name.replica.valid() && (!replica.valid() || name.replica == replica) &&
           (epoch == kEveryEpoch || name.epoch == epoch);
  };
  const auto dropped =
      std::remove_if(queue_.begin(), queue_.end(),
                     [&](const MasterMessage& message) { return concerned(EpochOf(message)); });
  waiting_.fetch_sub(static_cast<int>(queue_.end() - dropped), std::memory_order_relaxed);
  queue_.erase(dropped, queue_.end());
  if (running_ && concerned({running_replica_, running_epoch_})) {
    cancel_.store(true, std::memory_order_relaxed);
    if (endpoint_ != nullptr) endpoint_->AbortForming(running_replica_.value, running_epoch_);
  }
  if (assignment_ && shard_ != nullptr && concerned({assignment_->replica, assignment_->epoch})) {
    shard_->group().Abort();
  }
}

Heartbeat WorkerNode::heartbeat() const {
  Heartbeat beat;
  {
    std::lock_guard lock(beat_mutex_);
    beat = beat_;
    double step_s = step_s_;
    if (beat.in_step) {
      beat.in_step_s = Seconds(clock_.Now() - step_begin_);
      step_s += beat.in_step_s;
    }
    beat.compute_s = step_s;
  }
  CommStats stats;
  {
    std::lock_guard lock(mutex_);
    if (shard_ != nullptr) stats = shard_->group().stats();
  }
  beat.collective = stats.collectives;
  if (beat.in_step) {
    beat.waiting_for = stats.waiting_for;
    beat.waiting_s = stats.waiting_s;
  }
  beat.wait_s = stats.wait_s;
  beat.wire_s = stats.wire_s;
  beat.bytes_sent = stats.bytes_sent;
  beat.bytes_received = stats.bytes_received;
  beat.compute_s = std::max(0.0, beat.compute_s - stats.wait_s - stats.wire_s);
  return beat;
}

int64_t WorkerNode::memory_bytes() const {
  std::lock_guard lock(mutex_);
  // While a shard is held, its weights are missing from what the system can give.
  return shard_ != nullptr && shard_->IsLoaded(1) ? shard_->memory_bytes() : FreeMemory();
}

std::string WorkerNode::memory_pool() const {
  const MemorySupply supply = AvailableMemory();
  const int64_t limit = options_.memory_limit_bytes;
  return limit > 0 && limit <= supply.bytes ? "" : supply.pool;
}

bool WorkerNode::WaitUntilFree(Duration timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout,
                           [this] { return !assignment_ && !running_ && queue_.empty(); });
}

int64_t WorkerNode::FreeMemory() const {
  const int64_t available = AvailableMemoryBytes();
  return options_.memory_limit_bytes > 0 ? std::min(available, options_.memory_limit_bytes)
                                         : available;
}

// ---- step thread

// False: the node ends.
bool WorkerNode::Next(MasterMessage& message) {
  SpinWhileZero(waiting_);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
  if (stop_) return false;
  message = std::move(queue_.front());
  queue_.pop_front();
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  const EpochName name = EpochOf(message);
  running_ = true;
  running_replica_ = name.replica;
  running_epoch_ = name.epoch;
  cancel_.store(false, std::memory_order_relaxed);
  return true;
}

void WorkerNode::Work() {
  NameThread("step");
  MasterMessage message;
  while (Next(message)) {
    std::visit([this](const auto& concrete) { Handle(concrete); }, message);
    {
      std::lock_guard lock(mutex_);
      running_ = false;
    }
    changed_.notify_all();
  }
  LeaveEpoch();
}

// Disconnect waits for the step thread: the link lives as long as the message is being handled.
MasterLink* WorkerNode::CurrentLink() const {
  std::lock_guard lock(mutex_);
  return link_;
}

void WorkerNode::Send(const WorkerMessage& message) {
  MasterLink* const link = CurrentLink();
  if (link != nullptr) link->Send(message);
}

// What every error of a rank must say.
Status WorkerNode::Named(const Status& status) const {
  if (status.ok() || !assignment_) return status;
  return Status(status.code(), StrCat("rank ", assignment_->rank, " (", options_.name,
                                      "): ", std::string(status.message())));
}

void WorkerNode::SetAssignment(std::optional<Assignment> assignment) {
  {
    std::lock_guard lock(mutex_);
    assignment_ = std::move(assignment);
  }
  std::lock_guard lock(beat_mutex_);
  const int64_t resident_bytes = beat_.resident_bytes;
  beat_ = Heartbeat();
  beat_.resident_bytes = resident_bytes;
  if (assignment_) {
    beat_.replica = assignment_->replica;
    beat_.epoch = assignment_->epoch;
  }
  step_s_ = 0;
}

void WorkerNode::SetShard(std::unique_ptr<ResidentShard> shard) {
  {
    std::lock_guard lock(mutex_);
    shard_.swap(shard);
  }
  shard = nullptr;  // outside of the lock: weights are unmapped
  std::lock_guard lock(beat_mutex_);
  beat_.resident_bytes = shard_ == nullptr ? 0 : shard_->resident_bytes();
}

// The group's KV and links are of no use any more.
void WorkerNode::LeaveEpoch() {
  if (shard_ != nullptr) shard_->group().Bind(nullptr);
  if (assignment_) SetAssignment(std::nullopt);
}

void WorkerNode::Handle(const Abort& abort) {
  if (!assignment_ || assignment_->replica != abort.replica || assignment_->epoch != abort.epoch) {
    return;
  }
  spdlog::info("epoch {} of rank {} has ended: {}", abort.epoch, assignment_->rank, abort.reason);
  LeaveEpoch();
}

void WorkerNode::Handle(const Release& release) {
  if (assignment_ && assignment_->replica != release.replica) return;
  LeaveEpoch();
  if (shard_ != nullptr) spdlog::info("released {}", shard_->Description());
  SetShard(nullptr);
}

void WorkerNode::Handle(const Configure& configure) {
  LeaveEpoch();
  Assignment assignment;
  assignment.replica = configure.replica;
  assignment.epoch = configure.plan.epoch;
  assignment.rank = configure.rank;
  assignment.rank_count = static_cast<int>(configure.plan.ranks.size());
  assignment.tensor_groups = configure.plan.tensor_groups;
  assignment.samples = !configure.plan.tensor_groups.empty() &&
                       !configure.plan.tensor_groups.back().empty() &&
                       configure.plan.tensor_groups.back().front() == configure.rank;
  SetAssignment(std::move(assignment));
  Capacity capacity;
  capacity.replica = configure.replica;
  capacity.epoch = configure.plan.epoch;
  capacity.status = Named(CatchNoMemory([&] { return TakeShard(configure, &capacity); }));
  if (cancelled()) return;
  if (!capacity.status.ok()) spdlog::warn("{}", std::string(capacity.status.message()));
  Send(capacity);
}

// One for each connection: the way to the master may lead through another interface now, and a
// master that has started anew may use the numbers of epochs again that the endpoint has closed.
Status WorkerNode::OpenEndpoint(MasterLink& link) {
  std::unique_ptr<CommEndpoint> old;
  {
    std::lock_guard lock(mutex_);
    if (endpoint_ != nullptr && endpoint_connection_ == connection_) return absl::OkStatus();
    endpoint_connection_ = connection_;
    old = std::move(endpoint_);
  }
  old = nullptr;  // its port may be the new one's
  STAFFEL_ASSIGN_OR_RETURN(std::unique_ptr<CommEndpoint> endpoint,
                           make_endpoint_(link.local_address()));
  std::lock_guard lock(mutex_);
  endpoint_ = std::move(endpoint);
  return absl::OkStatus();
}

// Other workers of this host may be giving up what they hold for the same placement.
void WorkerNode::WaitForMemory(int64_t bytes) const {
  const Time deadline = clock_.Now() + kShareWait;
  while (FreeMemory() < bytes && !cancelled() && clock_.Now() < deadline) {
    std::this_thread::sleep_for(kShareLook);
  }
}

Status WorkerNode::TakeShard(const Configure& configure, Capacity* capacity) {
  MasterLink* const link = CurrentLink();
  if (link == nullptr) return absl::UnavailableError("the master is gone");
  STAFFEL_RETURN_IF_ERROR(OpenEndpoint(*link));
  capacity->comm_address = endpoint_->address();
  Result<std::shared_ptr<const StoredModel>> model =
      store_.Find(configure.model, *link, [this] { return cancelled(); });
  if (!model.ok()) return model.status();
  if (shard_ == nullptr || !shard_->IsLoaded(1) || !shard_->Matches(configure, **model)) {
    SetShard(nullptr);
    WaitForMemory(configure.memory_bytes - configure.memory_bytes / 10);
    Result<std::unique_ptr<ResidentShard>> shard =
        ResidentShard::Describe(configure, *std::move(model), *backend_, FreeMemory());
    if (!shard.ok()) return shard.status();
    SetShard(*std::move(shard));
  }
  return shard_->FillCapacity(capacity, configure.memory_bytes);
}

void WorkerNode::Handle(const Form& form) {
  if (!assignment_ || assignment_->replica != form.replica || assignment_->epoch != form.epoch) {
    return;
  }
  Formed formed;
  formed.replica = form.replica;
  formed.epoch = form.epoch;
  formed.status = Named(CatchNoMemory([&] { return JoinEpoch(form, &formed); }));
  if (!formed.status.ok() && shard_ != nullptr) shard_->group().Abort();
  if (cancelled()) return;
  if (formed.status.ok()) {
    spdlog::info(
        "rank {} of {}, epoch {}: {}, {} KV blocks; {}, connected in {:.3f} s", assignment_->rank,
        assignment_->rank_count, form.epoch, shard_->Description(), form.block_count,
        formed.weights_kept ? "weights kept"
                            : StrCat(HumanBytes(formed.bytes_read), " read (",
                                     HumanBytes(formed.bytes_fetched), " of them from the master)"),
        formed.form_s);
  } else {
    spdlog::warn("{}", std::string(formed.status.message()));
  }
  Send(formed);
}

// Connects first: all ranks are told to at the same time, while loading takes each its own.
Status WorkerNode::JoinEpoch(const Form& form, Formed* formed) {
  if (shard_ == nullptr) {
    return absl::FailedPreconditionError("it was told to form a group for a shard it refused");
  }
  if (static_cast<int>(form.addresses.size()) != assignment_->rank_count ||
      form.machines.size() != form.addresses.size() || form.block_count <= 0) {
    return absl::InvalidArgumentError(StrCat(
        "it was told ", form.addresses.size(), " addresses, ", form.machines.size(),
        " machines and ", form.block_count, " KV blocks for ", assignment_->rank_count, " ranks"));
  }
  const Time begin = clock_.Now();
  Result<std::unique_ptr<Communicator>> group =
      endpoint_->Form({.replica = form.replica.value,
                       .epoch = form.epoch,
                       .rank = assignment_->rank,
                       .tensor_groups = assignment_->tensor_groups,
                       .addresses = form.addresses,
                       .machines = form.machines,
                       .secret = form.secret},
                      options_.form_timeout);
  if (!group.ok()) return group.status();
  shard_->group().Bind(*std::move(group));
  formed->form_s = Seconds(clock_.Now() - begin);
  formed->weights_kept = shard_->IsLoaded(form.block_count);
  if (!formed->weights_kept) STAFFEL_RETURN_IF_ERROR(LoadShard(form, formed));
  return shard_->BeginEpoch(form.epoch);
}

Status WorkerNode::LoadShard(const Form& form, Formed* formed) {
  MasterLink* const link = CurrentLink();
  if (link == nullptr) return absl::UnavailableError("the master is gone");
  // Another process may have taken since what was free when the capacity was told.
  const int64_t held_bytes = shard_->resident_bytes();
  WaitForMemory(shard_->bytes_with(form.block_count) - held_bytes);
  STAFFEL_RETURN_IF_ERROR(shard_->CheckRoom(form.block_count, FreeMemory() + held_bytes));
  const Time begin = clock_.Now();
  Time reported = begin;
  const auto report = [&](double share) {
    const Time now = clock_.Now();
    if (now - reported < kProgressInterval) return;
    reported = now;
    Send(FormProgress{form.replica, form.epoch, std::clamp(share, 0.0, 1.0)});
  };
  const auto given_up = [this] { return cancelled(); };
  // Bytes that come over a network take most of the time.
  const double fetch_share = shard_->model()->cache == nullptr ? 0 : 0.8;
  STAFFEL_ASSIGN_OR_RETURN(formed->bytes_fetched,
                           ModelStore::Provide(
                               *shard_->model(), shard_->ranges(), *link,
                               [&](double share) { report(share * fetch_share); }, given_up));
  STAFFEL_RETURN_IF_ERROR(shard_->Load(
      *backend_, clock_, form.block_count,
      [&](double share) { report(fetch_share + share * (1 - fetch_share)); }, given_up));
  formed->bytes_read = shard_->model_bytes();
  formed->load_s = Seconds(clock_.Now() - begin);
  std::lock_guard lock(beat_mutex_);
  beat_.resident_bytes = shard_->resident_bytes();
  return absl::OkStatus();
}

void WorkerNode::Handle(const Step& step) {
  if (!assignment_ || assignment_->replica != step.replica ||
      assignment_->epoch != step.plan.epoch || assignment_->failed || shard_ == nullptr ||
      !shard_->IsLoaded(1)) {
    return;
  }
  {
    std::lock_guard lock(beat_mutex_);
    beat_.in_step = true;
    beat_.running_step = step.plan.step;
    step_begin_ = clock_.Now();
  }
  StepOutcome outcome = shard_->Run(step.plan);
  {
    std::lock_guard lock(beat_mutex_);
    beat_.in_step = false;
    beat_.running_step = 0;
    step_s_ += Seconds(clock_.Now() - step_begin_);
    if (outcome.status.ok()) beat_.step = step.plan.step;
  }
  if (cancelled()) return;
  if (!outcome.status.ok()) {
    // The others wait for this rank in vain.
    shard_->group().Abort();
    assignment_->failed = true;
    outcome.status = Named(outcome.status);
    spdlog::warn("step {} of epoch {} failed: {}", step.plan.step, step.plan.epoch,
                 std::string(outcome.status.message()));
  } else if (!assignment_->samples) {
    return;
  }
  Send(std::move(outcome));
}

}  // namespace staffel
