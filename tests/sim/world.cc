#include "tests/sim/world.h"

#include <algorithm>
#include <deque>
#include <memory>

#include "base/strings.h"
#include "tests/sim/fairness.h"
#include "tests/sim/fake_model.h"
#include "tests/sim/fake_replica.h"
#include "tests/sim/oracle.h"
#include "tests/sim/scenario.h"

namespace staffel::sim {
namespace {

constexpr auto kTick = std::chrono::milliseconds(1);

class TickClock final : public Clock {
 public:
  Time Now() const override { return Time(std::chrono::hours(1)) + tick * kTick; }
  int tick = 0;
};

class World final : public Transport {
 public:
  World(uint64_t seed, const WorldOptions& options)
      : scenario_(MakeScenario(seed)),
        random_(seed ^ 0x77),
        tracing_(options.trace),
        coverage_(options.coverage) {
    scenario_.options.check_invariants = options.check_invariants;
  }

  WorldResult Run();

  // Transport
  void SetOutcomeHandler(std::function<void(StepOutcome)> handler) override {
    handler_ = std::move(handler);
  }
  Status Submit(StepPlan plan) override;

 private:
  class Sink final : public EventSink {
   public:
    Sink(World* world, size_t client) : world_(world), client_(client) {}
    void OnEvent(const SeqEvent& event) override { world_->OnEvent(client_, event); }

   private:
    World* world_;
    size_t client_;
  };
  struct Client {
    explicit Client(ClientScript s) : script(std::move(s)) {}
    ClientScript script;
    std::unique_ptr<ClientOracle> oracle;  // once accepted
    bool cancel_sent = false;
    bool must_end = false;    // it was there when the wait for workers ran out
    bool may_fail = false;    // or came then, before there were workers again
    int turns_since_end = 0;  // since it was cancelled or given up
  };

  void Fail(const std::string& what) {
    if (failure_.empty()) failure_ = StrCat("tick ", clock_.tick, ": ", what);
  }
  template <class... Pieces>
  void Trace(const Pieces&... pieces) {
    if (tracing_) trace_.push_back(StrCat("tick ", clock_.tick, ": ", pieces...));
  }
  void Count(const char* what, int64_t n = 1) {
    if (coverage_ != nullptr) (*coverage_)[what] += n;
  }
  void TracePlan(const StepPlan& plan);

  void Tick();
  void SubmitDue();
  void CancelDue();
  void Cancel(Client& client);
  void SubmitClient(size_t index);
  void LossDue();
  void Lose(const LossScript& loss);
  void GiveUp();
  void BringUp(const LossScript& loss);
  FakeShape Shape(int stages, int group) const;
  void Execute();
  void Deliver();
  void TurnEngine();
  void OnEvent(size_t client, const SeqEvent& event);
  void CheckCached(const Client& client, const SeqEvent& event);
  void CheckRefusal(const Client& client, const Status& status);
  bool Finished() const;
  void CheckEnd();
  int TicksMax() const;

  Scenario scenario_;
  Random random_;
  TickClock clock_;
  std::unique_ptr<Engine> engine_;
  std::function<void(StepOutcome)> handler_;
  std::unique_ptr<FakeReplica> replica_;
  std::unique_ptr<FairnessOracle> fairness_;
  int epoch_ = 1, block_count_ = 0, block_count_min_ = 0;
  int stages_ = 1;
  std::deque<StepOutcome> outcomes_;  // run, not yet delivered
  std::deque<StepOutcome> stale_;     // of workers that are lost
  std::vector<Client> clients_;
  size_t next_loss_ = 0;
  bool down_ = false, submit_fails_ = false, failed_ = false, drained_ = false;
  bool refusing_ = false;  // since it gave up, until it has resumed
  int up_tick_ = 0;
  int64_t accepted_prompt_tokens_ = 0, tokens_ = 0;
  bool tracing_;
  Coverage* coverage_;
  std::vector<std::string> trace_;
  std::string failure_;
};

Status World::Submit(StepPlan plan) {
  if (down_) {
    if (!submit_fails_) Fail("a plan for lost workers");
    return absl::UnavailableError("worker lost");
  }
  TracePlan(plan);
  Count("steps");
  Count("copies", static_cast<int64_t>(plan.block_copies.size()));
  if (std::string wrong = fairness_->OnPlan(plan); !wrong.empty()) Fail(wrong);
  Count("tokens relayed", static_cast<int64_t>(plan.known_tokens.size()));
  Count("tokens forced", static_cast<int64_t>(plan.forced_tokens.size()));
  Count("steps of pipelines", stages_ > 1);
  replica_->Submit(std::move(plan));
  const int in_flight = replica_->in_flight() + static_cast<int>(outcomes_.size());
  if (in_flight > fairness_->depth()) {
    Fail("more steps in flight than depth");
  }
  Count("all stages have a step", stages_ > 1 && in_flight == stages_);
  return absl::OkStatus();
}

void World::TracePlan(const StepPlan& plan) {
  if (!tracing_) return;
  std::string text;
  for (const KnownToken& k : plan.known_tokens) {
    StrAppend(text, " ", k.slot.value, "@", k.position, "=", k.token);
  }
  for (const ForcedToken& f : plan.forced_tokens) {
    StrAppend(text, " ", f.slot.value, "@", f.position, ":=", f.token);
  }
  for (Slot slot : plan.released) StrAppend(text, " -", slot.value);
  for (const NewSequence& s : plan.new_sequences) {
    StrAppend(text, " +", s.slot.value, "=r", s.sampling.seed, ".", s.sequence_index, "(",
              s.tokens.size(), ")");
  }
  for (const BlockAppend& a : plan.block_appends) {
    StrAppend(text, " ", a.slot.value, "<-[");
    for (BlockId b : a.blocks) StrAppend(text, b.value, " ");
    StrAppend(text, "]");
  }
  for (const BlockCopy& c : plan.block_copies)
    StrAppend(text, " copy ", c.source.value, ">", c.target.value);
  for (const Chunk& c : plan.chunks) {
    StrAppend(text, " ", c.slot.value, ":", c.start, "+", c.count, c.samples ? "*" : "",
              c.prompt_logprobs ? "p" : "");
  }
  Trace("plan ", plan.step, " of epoch ", plan.epoch, ":", text);
}

void World::SubmitClient(size_t index) {
  Client& client = clients_[index];
  const GenerateRequest& request = client.script.request;
  // Accepted ones speak of nothing before Submit has returned.
  Status status = engine_->Submit(request, std::make_shared<Sink>(this, index));
  Trace("submit ", request.id.value, " prompt ", request.prompt.size(), " max ", request.max_tokens,
        " n ", request.n, " salt '", request.cache_salt, "' priority ", request.priority, ": ",
        status.ok());
  if (!status.ok()) {
    CheckRefusal(client, status);
    return;
  }
  client.oracle = std::make_unique<ClientOracle>(request, scenario_.options.scheduler.max_model_len,
                                                 scenario_.options.scheduler.block_size);
  client.may_fail = refusing_;
  accepted_prompt_tokens_ += static_cast<int64_t>(request.prompt.size());
  fairness_->OnSubmit(request);
  Count("accepted");
}

void World::CheckRefusal(const Client& client, const Status& status) {
  const sched::Config& config = scenario_.options.scheduler;
  const GenerateRequest& request = client.script.request;
  const int prompt = static_cast<int>(request.prompt.size());
  const bool impossible = prompt + (request.max_tokens > 0) > config.max_model_len ||
                          prompt > engine_->limits().kv_capacity_tokens;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      Count("refused: can never run");
      if (!impossible && request.n <= std::max(scenario_.options.max_queue, config.max_sequences)) {
        Fail(StrCat("refused without a reason: ", std::string(status.message())));
      }
      break;
    case absl::StatusCode::kResourceExhausted:
      Count("refused: queue full");
      if (scenario_.options.max_queue > 100) Fail("the queue cannot be full");
      break;
    case absl::StatusCode::kUnavailable:
      if (!failed_ && !drained_ && !refusing_) Fail("refused although nothing failed");
      break;
    default:
      Fail(StrCat("refused with ", std::string(status.message())));
  }
}

void World::SubmitDue() {
  for (size_t i = 0; i < clients_.size(); ++i) {
    if (clients_[i].script.submit_tick == clock_.tick) SubmitClient(i);
  }
}

void World::Cancel(Client& client) {
  client.cancel_sent = true;
  engine_->Cancel(client.script.request.id, client.script.cancel_index);
  client.oracle->Cancelled(client.script.cancel_index);
  Count("cancelled");
  Trace("cancel ", client.script.request.id.value, ".", client.script.cancel_index);
}

void World::CancelDue() {
  for (Client& client : clients_) {
    if (client.oracle == nullptr || client.cancel_sent || client.oracle->finished()) continue;
    const ClientScript& script = client.script;
    if (script.cancel_tick == clock_.tick ||
        (script.cancel_after_tokens.has_value() &&
         client.oracle->tokens_received() >= *script.cancel_after_tokens)) {
      Cancel(client);
    }
  }
}

FakeShape World::Shape(int stages, int group) const {
  const sched::Config& config = scenario_.options.scheduler;
  return {.epoch = epoch_,
          .block_count = block_count_,
          .block_size = config.block_size,
          .slot_count = config.max_sequences,
          .stages = stages,
          .group = group};
}

void World::LossDue() {
  if (down_ && !failed_) {
    const LossScript& loss = scenario_.losses[next_loss_ - 1];
    if (loss.give_up_tick == clock_.tick) GiveUp();
    if (clock_.tick >= up_tick_) BringUp(loss);
  }
  if (down_ || next_loss_ == scenario_.losses.size()) return;
  const LossScript& loss = scenario_.losses[next_loss_];
  if (clock_.tick < loss.tick) return;
  ++next_loss_;
  Lose(loss);
  if (loss.give_up_tick == clock_.tick && !failed_) GiveUp();
}

void World::BringUp(const LossScript& loss) {
  down_ = submit_fails_ = false;
  block_count_ = loss.block_count;
  block_count_min_ = std::min(block_count_min_, block_count_);
  ++epoch_;
  Count("layout changes", stages_ != loss.stages);
  stages_ = loss.stages;
  replica_ = std::make_unique<FakeReplica>(Shape(loss.stages, loss.group));
  fairness_->OnEpoch(stages_, loss.group);
  engine_->Resume({.epoch = epoch_,
                   .block_count = block_count_,
                   .stages = loss.stages,
                   .ranks = loss.stages * loss.group});
  Trace("resume epoch ", epoch_, " with ", block_count_, " blocks, ", loss.stages, " stages of ",
        loss.group);
}

// The wait for workers has run out: what is there must end, what comes is refused.
void World::GiveUp() {
  refusing_ = true;
  for (Client& client : clients_) {
    if (client.oracle == nullptr || client.oracle->finished()) continue;
    client.must_end = client.may_fail = true;
    Count("requests given up");
  }
  engine_->FailRequests(absl::UnavailableError("no workers"));
  Trace("give up");
}

void World::Lose(const LossScript& loss) {
  down_ = true;
  up_tick_ = clock_.tick + loss.ticks_down;
  if (!scenario_.options.heal) failed_ = true;
  Count("losses");
  Trace("loss ", static_cast<int>(loss.kind));
  const bool in_flight = replica_->in_flight() > 0 || !outcomes_.empty();
  // What was run may still come, late, in the next epoch.
  for (StepOutcome& outcome : outcomes_) stale_.push_back(std::move(outcome));
  outcomes_.clear();
  if (loss.kind == LossScript::Kind::kOutcome && replica_->in_flight() > 0) {
    handler_({.epoch = epoch_,
              .step = replica_->oldest().step,
              .status = absl::UnavailableError("worker lost")});
    return;
  }
  submit_fails_ = true;
  if (loss.kind == LossScript::Kind::kPlanned) {
    engine_->Pause(absl::UnavailableError("a worker joins"));
  } else if (loss.kind != LossScript::Kind::kSubmit || in_flight) {
    engine_->ReportLoss(absl::UnavailableError("heartbeat late"));
  }
}

void World::Execute() {
  if (down_) return;
  for (int stage = 0; stage < stages_; ++stage) {
    while (replica_->Ready(stage) && random_.Percent(scenario_.execute_percent)) {
      int tokens = 0;
      for (const Chunk& chunk : replica_->oldest().chunks) tokens += chunk.count;
      std::optional<StepOutcome> outcome = replica_->Run(stage);
      if (!replica_->violation().empty()) {
        Fail(StrCat("a plan breaks a rule: ", replica_->violation()));
      }
      if (outcome.has_value()) {
        outcome->compute_s = 0.002 + 0.0002 * tokens;
        outcomes_.push_back(*std::move(outcome));
      }
      if (random_.Percent(50)) break;
    }
  }
}

void World::Deliver() {
  while (!outcomes_.empty() && random_.Percent(scenario_.deliver_percent)) {
    handler_(std::move(outcomes_.front()));
    outcomes_.pop_front();
  }
  if (!down_ && !stale_.empty() && random_.Percent(30)) {
    handler_(std::move(stale_.front()));
    stale_.pop_front();
    Count("stale outcomes");
  }
}

void World::TurnEngine() {
  if (!random_.Percent(scenario_.turn_percent)) return;
  engine_->Turn();
  if (!down_) refusing_ = false;
  // A cancellation stands behind the submissions before it, then acts at once. So does the end of
  // all.
  const int turns_max =
      static_cast<int>(clients_.size()) / scenario_.options.submits_per_turn_max + 1;
  for (Client& client : clients_) {
    const bool cancelled = client.cancel_sent && client.oracle->AwaitsCancelled();
    const bool ended = client.must_end && !client.oracle->finished();
    if ((cancelled || ended) && ++client.turns_since_end > turns_max) {
      Fail(StrCat("request ", client.script.request.id.value, " outlives its end"));
    }
  }
}

void World::OnEvent(size_t index, const SeqEvent& event) {
  Client& client = clients_[index];
  tokens_ += static_cast<int64_t>(event.tokens.size());
  Trace("event r", event.request.value, ".", event.index, " tokens ", event.tokens.size(),
        " finish ", event.finish.has_value() ? static_cast<int>(*event.finish) : -1, " cached ",
        event.cached_tokens);
  if (client.oracle == nullptr) return Fail("an event of a refused request");
  std::string wrong =
      client.oracle->OnEvent(event, block_count_min_, failed_ || drained_ || client.may_fail);
  if (!wrong.empty()) Fail(StrCat("request ", event.request.value, ": ", wrong));
  if (event.first) CheckCached(client, event);
  fairness_->OnEvent(event);
  if (event.finish.has_value() && client.oracle->exhausted()) Count("pool exhausted");
}

// No more can be found than what somebody with the same salt has had in common with it.
void World::CheckCached(const Client& client, const SeqEvent& event) {
  if (event.cached_tokens == 0) return;
  Count("prefix hits");
  const GenerateRequest& mine = client.script.request;
  if (engine_->stats().preemptions > 0 || epoch_ > 1 || mine.n > 1) return;
  int common_max = 0;
  for (const Client& other : clients_) {
    if (&other == &client || other.oracle == nullptr ||
        other.script.request.cache_salt != mine.cache_salt)
      continue;
    const GenerateRequest& theirs = other.script.request;
    for (int i = 0; i < theirs.n; ++i) {
      std::vector<TokenId> tokens = theirs.prompt;
      const auto& text = other.oracle->expected(i).tokens;
      tokens.insert(tokens.end(), text.begin(), text.end());
      const auto end =
          std::mismatch(tokens.begin(), tokens.end(), mine.prompt.begin(), mine.prompt.end()).first;
      common_max = std::max(common_max, static_cast<int>(end - tokens.begin()));
    }
  }
  if (event.cached_tokens > common_max) {
    Fail(StrCat("request ", mine.id.value, " found ", event.cached_tokens, " tokens; only ",
                common_max, " are shared within its salt"));
  }
}

bool World::Finished() const {
  return std::all_of(clients_.begin(), clients_.end(), [&](const Client& client) {
    return client.oracle == nullptr ? client.script.submit_tick < clock_.tick
                                    : client.oracle->finished();
  });
}

void World::Tick() {
  SubmitDue();
  CancelDue();
  if (scenario_.drain_tick == clock_.tick) {
    drained_ = true;
    engine_->Drain(clock_.Now() + scenario_.drain_ticks * kTick);
    Trace("drain");
  }
  LossDue();
  Execute();
  Deliver();
  TurnEngine();
}

// Liveness: generous, but a bound. Each token of work is at worst a step of its own, computed anew
// after each preemption by an elder; a step takes a few ticks.
int World::TicksMax() const {
  int64_t tokens = 0;
  for (const Client& client : clients_) {
    const GenerateRequest& request = client.script.request;
    tokens += request.n * static_cast<int64_t>(request.prompt.size() + request.max_tokens);
  }
  return static_cast<int>(1000 + 60 * tokens);
}

void World::CheckEnd() {
  const EngineStats stats = engine_->stats();
  if (stats.running + stats.waiting != 0) Fail("sequences are left");
  if (stats.blocks_free + stats.blocks_cached != stats.blocks_total && !failed_) {
    Fail(StrCat("blocks leak: ", stats.blocks_free, " free + ", stats.blocks_cached, " cached of ",
                stats.blocks_total));
  }
  if (stats.prefix_hits_tokens > stats.prefix_queries_tokens) Fail("more hits than queries");
  if (static_cast<int64_t>(stats.prefix_queries_tokens) > accepted_prompt_tokens_) {
    Fail("a request is counted twice in the prefix statistics");
  }
  if (static_cast<int64_t>(stats.generation_tokens) != tokens_)
    Fail("tokens are lost or counted twice");
  int sequences = 0;
  for (const Client& client : clients_) {
    if (client.oracle != nullptr) sequences += client.script.request.n;
  }
  if (static_cast<int>(stats.finished_stop + stats.finished_length + stats.finished_cancelled +
                       stats.finished_error) > sequences) {
    Fail("more ends than sequences");
  }
  Count("preemptions", static_cast<int64_t>(stats.preemptions));
  Count("stops", static_cast<int64_t>(stats.finished_stop));
  Count("tokens", tokens_);
}

WorldResult World::Run() {
  const sched::Config& config = scenario_.options.scheduler;
  block_count_ = block_count_min_ = config.block_count;
  stages_ = scenario_.options.stages;
  replica_ = std::make_unique<FakeReplica>(Shape(stages_, scenario_.group));
  fairness_ = std::make_unique<FairnessOracle>(scenario_);
  for (const ClientScript& script : scenario_.clients) clients_.emplace_back(script);
  auto engine = Engine::Create(scenario_.options, this, &clock_);
  if (!engine.ok()) {
    Fail(std::string(engine.status().message()));
    return {failure_, trace_};
  }
  engine_ = *std::move(engine);
  const int ticks_max = TicksMax();
  while (failure_.empty() && !Finished()) {
    if (clock_.tick == ticks_max) Fail("requests do not end");
    Tick();
    ++clock_.tick;
  }
  // Steps in flight end, the engine comes to rest.
  for (int i = 0; i < 200 && failure_.empty(); ++i, ++clock_.tick) Tick();
  int turns = 0;
  while (failure_.empty() && engine_->Turn() && turns < 10) ++turns;
  if (turns == 10) Fail("the engine does not come to rest");
  if (failure_.empty()) CheckEnd();
  failed_ = drained_ = true;
  std::string failure = failure_;
  engine_->Stop();
  return {failure, trace_};
}

}  // namespace

WorldResult RunWorld(uint64_t seed, const WorldOptions& options) {
  return World(seed, options).Run();
}

}  // namespace staffel::sim
