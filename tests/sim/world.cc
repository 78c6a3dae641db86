#include "tests/sim/world.h"

#include <algorithm>
#include <deque>
#include <memory>

#include "base/strings.h"
#include "tests/sim/fairness.h"
#include "tests/sim/fake_model.h"
#include "tests/sim/fake_worker.h"
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
    int turns_since_cancel = 0;
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
  std::unique_ptr<FakeWorker> worker_;
  std::unique_ptr<FairnessOracle> fairness_;
  int epoch_ = 1, block_count_ = 0, block_count_min_ = 0;
  std::deque<StepPlan> plans_;        // sent, not yet run
  std::deque<StepOutcome> outcomes_;  // run, not yet delivered
  std::deque<StepOutcome> stale_;     // of workers that are lost
  std::vector<Client> clients_;
  size_t next_loss_ = 0;
  bool down_ = false, submit_fails_ = false, failed_ = false, drained_ = false;
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
  plans_.push_back(std::move(plan));
  if (static_cast<int>(plans_.size() + outcomes_.size()) > scenario_.options.depth) {
    Fail("more steps in flight than depth");
  }
  return absl::OkStatus();
}

void World::TracePlan(const StepPlan& plan) {
  if (!tracing_) return;
  std::string text;
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
      if (!failed_ && !drained_) Fail("refused although nothing failed");
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

void World::LossDue() {
  if (down_ && clock_.tick >= up_tick_ && !failed_) {
    const LossScript& loss = scenario_.losses[next_loss_ - 1];
    down_ = submit_fails_ = false;
    block_count_ = loss.block_count;
    block_count_min_ = std::min(block_count_min_, block_count_);
    ++epoch_;
    const sched::Config& config = scenario_.options.scheduler;
    worker_ =
        std::make_unique<FakeWorker>(epoch_, block_count_, config.block_size, config.max_sequences);
    fairness_->OnEpoch();
    engine_->Resume({.epoch = epoch_, .block_count = block_count_});
    Trace("resume epoch ", epoch_, " with ", block_count_, " blocks");
  }
  if (down_ || next_loss_ == scenario_.losses.size()) return;
  const LossScript& loss = scenario_.losses[next_loss_];
  if (clock_.tick < loss.tick) return;
  ++next_loss_;
  down_ = true;
  up_tick_ = clock_.tick + loss.ticks_down;
  if (!scenario_.options.heal) failed_ = true;
  Count("losses");
  Trace("loss ", static_cast<int>(loss.kind));
  const bool in_flight = !plans_.empty() || !outcomes_.empty();
  // What was run may still come, late, in the next epoch.
  for (StepOutcome& outcome : outcomes_) stale_.push_back(std::move(outcome));
  outcomes_.clear();
  if (loss.kind == LossScript::Kind::kOutcome && !plans_.empty()) {
    outcomes_.push_back({.epoch = epoch_,
                         .step = plans_.front().step,
                         .status = absl::UnavailableError("worker lost")});
    plans_.clear();
    handler_(outcomes_.front());
    outcomes_.clear();
    return;
  }
  plans_.clear();
  submit_fails_ = true;
  if (loss.kind != LossScript::Kind::kSubmit || in_flight) {
    engine_->ReportLoss(absl::UnavailableError("heartbeat late"));
  }
}

void World::Execute() {
  while (!plans_.empty() && random_.Percent(scenario_.execute_percent)) {
    StepOutcome outcome = worker_->Execute(plans_.front());
    int tokens = 0;
    for (const Chunk& chunk : plans_.front().chunks) tokens += chunk.count;
    outcome.compute_s = 0.002 + 0.0002 * tokens;
    if (!worker_->violation().empty())
      Fail(StrCat("plan ", outcome.step, " breaks a rule: ", worker_->violation()));
    plans_.pop_front();
    outcomes_.push_back(std::move(outcome));
    if (random_.Percent(50)) break;
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
  // A cancellation stands behind the submissions before it, then acts at once.
  const int turns_max =
      static_cast<int>(clients_.size()) / scenario_.options.submits_per_turn_max + 1;
  for (Client& client : clients_) {
    if (!client.cancel_sent || !client.oracle->AwaitsCancelled()) continue;
    if (++client.turns_since_cancel > turns_max) {
      Fail(StrCat("request ", client.script.request.id.value, " outlives its cancellation"));
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
  std::string wrong = client.oracle->OnEvent(event, block_count_min_, failed_ || drained_);
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
  worker_ = std::make_unique<FakeWorker>(1, block_count_, config.block_size, config.max_sequences);
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
