#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "base/thread.h"
#include "sched/mutation.h"

namespace staffel {
namespace {

using sched::IsMutant;
using sched::Mutant;

int64_t Nanoseconds(Time time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

Status CheckTokens(const char* what, const std::vector<TokenId>& tokens, int vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    return absl::InvalidArgumentError(StrCat("token ", i, " of the ", what, " is ", tokens[i],
                                             "; the vocabulary has ", vocab_size, " tokens"));
  }
  return absl::OkStatus();
}

// Steps in flight.
int DepthOf(const EpochLayout& layout, int depth) {
  if (layout.stages > 1) return layout.stages;
  return layout.ranks > 1 ? std::max(depth, 2) : depth;
}

// What the scheduler is told of a layout. With several stages a sequence waits for each of its
// tokens: the first stage must be told it.
sched::EpochSettings SettingsOf(const EpochLayout& layout, int depth) {
  const bool pipeline = layout.stages > 1;
  return {.epoch = layout.epoch,
          .block_count = layout.block_count,
          .micro_batches = pipeline ? layout.stages : 1,
          .promised_tokens_max =
              !pipeline ? DepthOf(layout, depth) : (IsMutant(Mutant::kPromiseInPipeline) ? 2 : 1),
          .relay_tokens = layout.ranks > 1 || pipeline};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Create(EngineOptions options, Transport* transport,
                                               const Clock* clock) {
  const sched::EpochSettings settings = SettingsOf({.block_count = options.scheduler.block_count,
                                                    .stages = options.stages,
                                                    .ranks = options.ranks},
                                                   options.depth);
  options.scheduler.micro_batches = settings.micro_batches;
  options.scheduler.promised_tokens_max = settings.promised_tokens_max;
  options.scheduler.relay_tokens = settings.relay_tokens;
  STAFFEL_RETURN_IF_ERROR(options.scheduler.Validate());
  if (options.depth < 1 || options.stages < 1 || options.ranks < 1 || options.max_queue < 1 ||
      options.submits_per_turn_max < 1 || options.vocab_size < 1) {
    return absl::InvalidArgumentError(
        StrCat("depth (", options.depth, "), stages (", options.stages, "), ranks (", options.ranks,
               "), max_queue (", options.max_queue, "), submits_per_turn_max (",
               options.submits_per_turn_max, ") and vocab_size (", options.vocab_size,
               ") must be at least 1"));
  }
  return std::unique_ptr<Engine>(new Engine(std::move(options), transport, clock));
}

Engine::Engine(EngineOptions options, Transport* transport, const Clock* clock)
    : options_(std::move(options)),
      transport_(transport),
      clock_(clock),
      scheduler_(options_.scheduler),
      depth_(DepthOf({.stages = options_.stages, .ranks = options_.ranks}, options_.depth)),
      block_count_(options_.scheduler.block_count) {
  transport_->SetOutcomeHandler([mailbox = mailbox_](StepOutcome outcome) {
    {
      std::lock_guard lock(mailbox->mutex);
      mailbox->outcomes.push_back(std::move(outcome));
    }
    mailbox->wake.notify_one();  // after the lock, or the engine would wake into it
  });
  PublishState();
}

Engine::~Engine() { Stop(); }

void Engine::Start() {
  STAFFEL_CHECK(!thread_.joinable());
  thread_ = std::thread([this] { RunThread(); });
}

void Engine::RunThread() {
  NameThread("engine");
  PreferShortSlices();
  while (true) {
    if (Turn()) continue;
    Mailbox& box = *mailbox_;
    std::unique_lock lock(box.mutex);
    const auto ready = [&] {
      return box.stopping || !box.commands.empty() || !box.controls.empty() ||
             !box.outcomes.empty();
    };
    if (box.draining && !box.live.empty()) {
      box.wake.wait_until(lock, box.drain_deadline, ready);
    } else {
      box.wake.wait(lock, ready);
    }
    if (box.stopping) return;
  }
}

bool Engine::Turn() {
  Take();
  const Time begin = clock_->Now();
  bool busy = !taken_outcomes_.empty() || !taken_commands_.empty() || !taken_controls_.empty();
  for (StepOutcome& outcome : taken_outcomes_) HandleOutcome(std::move(outcome));
  for (Control& control : taken_controls_) {
    std::visit([this](auto& c) { Handle(c); }, control);
    CheckAfterEvent();
  }
  for (Command& command : taken_commands_) {
    std::visit([this](auto& c) { Handle(c); }, command);
    CheckAfterEvent();
  }
  EnforceDeadline(begin);
  // Before the next plan: once the workers compute again, this thread may have to wait for a core.
  const Time handled = clock_->Now();
  bool delivered = DeliverEvents();
  const Time planning = clock_->Now();
  busy |= SendPlans();
  const Time planned = clock_->Now();
  delivered |= DeliverEvents();  // of sequences that planning has ended
  if (delivered && options_.on_delivered) options_.on_delivered();
  if (!busy && !delivered) return false;
  totals_.plan_s += Seconds((handled - begin) + (planned - planning));
  PublishState();
  return true;
}

void Engine::Take() {
  taken_outcomes_.clear();
  taken_commands_.clear();
  taken_controls_.clear();
  taken_sequences_ = 0;
  Mailbox& box = *mailbox_;
  std::lock_guard lock(box.mutex);
  std::swap(taken_outcomes_, box.outcomes);
  std::swap(taken_controls_, box.controls);
  int submits = 0;  // only these are bounded: a cancellation is cheap and must not wait
  while (!box.commands.empty()) {
    if (const auto* submit = std::get_if<SubmitCommand>(&box.commands.front())) {
      if (submits++ == options_.submits_per_turn_max) break;
      taken_sequences_ += submit->request.n;
    }
    taken_commands_.push_back(std::move(box.commands.front()));
    box.commands.pop_front();
  }
}

void Engine::HandleOutcome(StepOutcome outcome) {
  if (paused_ || !scheduler_.IsCurrent(outcome)) return;
  if (!outcome.status.ok()) return HandleLoss(outcome.status);
  const double compute_s = outcome.compute_s;
  const Time now = clock_->Now();
  if (Status status = scheduler_.Apply(std::move(outcome), events_); !status.ok()) {
    return HandleLoss(status);
  }
  totals_.compute_s += compute_s;
  totals_.wait_s += std::max(0.0, Seconds(now - busy_since_) - compute_s);
  busy_since_ = now;
  CheckAfterEvent();
}

void Engine::Handle(SubmitCommand& command) {
  const RequestId id = command.request.id;
  const int n = command.request.n;
  sinks_.emplace(id, SinkEntry{std::move(command.sink), n});
  Status status = Refusal();
  if (!scheduler_.HasWork()) busy_since_ = clock_->Now();
  if (status.ok()) status = scheduler_.Submit(std::move(command.request));
  if (status.ok()) return;
  // It passed the checks when it was queued; the engine or its pool has changed since.
  for (int i = 0; i < n; ++i) {
    SeqEvent event{
        .request = id, .index = i, .finish = FinishReason::kError, .error = status, .first = true};
    events_.push_back(std::move(event));
  }
}

void Engine::Handle(CancelCommand& command) {
  scheduler_.Cancel(command.request, command.index, events_);
}

void Engine::Handle(FailCommand& command) {
  scheduler_.Fail(command.reason, events_);
  if (paused_ && !ended_all_) SetRefusal(command.reason);
}

void Engine::Handle(LossCommand& command) {
  if (paused_) return;
  if (command.planned) {
    BeginPause(command.reason);
  } else {
    HandleLoss(command.reason);
  }
}

void Engine::Handle(ResumeCommand& command) {
  const EpochLayout& layout = command.layout;
  if (ended_all_ || layout.epoch <= scheduler_.epoch()) return;
  scheduler_.BeginEpoch(SettingsOf(layout, options_.depth), events_);
  if (!IsMutant(Mutant::kKeepDepthOverEpochs)) depth_ = DepthOf(layout, options_.depth);
  block_count_ = layout.block_count;
  ++totals_.resumes;
  const Time now = clock_->Now();
  if (std::exchange(paused_, false)) {
    totals_.paused_s += Seconds(std::chrono::nanoseconds(Nanoseconds(now) - paused_since_ns_));
    paused_since_ns_ = 0;
  }
  busy_since_ = now;
  SetRefusal(absl::OkStatus());
  SetHealth(absl::OkStatus());
}

void Engine::HandleLoss(const Status& reason) {
  ++totals_.losses;
  BeginPause(reason);
  if (options_.on_loss) options_.on_loss(scheduler_.epoch(), reason);
}

void Engine::BeginPause(const Status& reason) {
  paused_ = true;
  paused_since_ns_ = Nanoseconds(clock_->Now());
  SetHealth(absl::UnavailableError(
      StrCat("the model is not being served: ", std::string(reason.message()))));
  if (!options_.heal) EndAll(reason);
}

void Engine::EndAll(const Status& reason) {
  ended_all_ = true;
  paused_ = true;
  SetRefusal(SaidHealth());
  scheduler_.Fail(reason, events_);
}

void Engine::EnforceDeadline(Time now) {
  {
    std::lock_guard lock(mailbox_->mutex);
    if (!mailbox_->draining || now < mailbox_->drain_deadline) return;
  }
  if (!scheduler_.HasWork()) return;
  scheduler_.Fail(absl::UnavailableError("the server is shutting down"), events_);
  CheckAfterEvent();
}

bool Engine::SendPlans() {
  bool sent = false;
  while (!paused_ && scheduler_.steps_in_flight() < depth_) {
    std::optional<StepPlan> plan = scheduler_.Plan(events_);
    CheckAfterEvent();
    if (!plan.has_value()) break;
    sent = true;
    if (Status status = transport_->Submit(*std::move(plan)); !status.ok()) HandleLoss(status);
  }
  return sent;
}

bool Engine::DeliverEvents() {
  if (events_.empty()) return false;
  for (const SeqEvent& event : events_) {
    const auto it = sinks_.find(event.request);
    STAFFEL_CHECK(it != sinks_.end()) << "event of unknown request " << event.request;
    it->second.sink->OnEvent(event);
    if (event.finish.has_value() && --it->second.unfinished == 0) {
      ended_.push_back(event.request);
      sinks_.erase(it);
    }
  }
  events_.clear();
  return true;
}

void Engine::PublishState() {
  const EngineStats& scheduled = scheduler_.stats();
  {
    std::lock_guard lock(state_mutex_);
    stats_ = scheduled;
    stats_.compute_s = totals_.compute_s;
    stats_.wait_s = totals_.wait_s;
    stats_.plan_s = totals_.plan_s;
    stats_.epoch = scheduler_.epoch();
    stats_.steps_in_flight = scheduler_.steps_in_flight();
    stats_.losses = totals_.losses;
    stats_.resumes = totals_.resumes;
    stats_.paused_s = totals_.paused_s;
  }
  if (!scheduler_.HasWork() && scheduler_.steps_in_flight() == 0) scheduler_.CheckInvariants();
  Mailbox& box = *mailbox_;
  std::lock_guard lock(box.mutex);
  box.queued -= taken_sequences_;
  box.waiting = scheduled.waiting;
  box.running = scheduled.running;
  for (RequestId id : ended_) box.live.erase(id);
  ended_.clear();
  if (box.live.empty()) box.idle.notify_all();
  if (scheduler_.HasWork()) {
    progress_ns_ = Nanoseconds(busy_since_);
  } else if (box.commands.empty()) {
    progress_ns_ = 0;
  }
}

void Engine::CheckAfterEvent() const {
  if (options_.check_invariants) scheduler_.CheckInvariants();
}

void Engine::SetHealth(Status status) {
  std::lock_guard lock(state_mutex_);
  health_ = std::move(status);
}

void Engine::SetRefusal(Status status) {
  std::lock_guard lock(state_mutex_);
  refusal_ = std::move(status);
}

Status Engine::Submit(GenerateRequest request, std::shared_ptr<EventSink> sink) {
  sched::Config config = options_.scheduler;
  config.block_count = block_count_;
  STAFFEL_RETURN_IF_ERROR(sched::Scheduler::Check(config, request));
  STAFFEL_RETURN_IF_ERROR(CheckTokens("prompt", request.prompt, options_.vocab_size));
  STAFFEL_RETURN_IF_ERROR(CheckTokens("stop tokens", request.stop_tokens, options_.vocab_size));
  for (const LogitBias& bias : request.sampling.logit_bias) {
    if (bias.token >= 0 && bias.token < options_.vocab_size) continue;
    return absl::InvalidArgumentError(StrCat("logit_bias names token ", bias.token,
                                             "; the vocabulary has ", options_.vocab_size,
                                             " tokens"));
  }
  const int sequences_max = std::max(options_.max_queue, config.max_sequences);
  if (request.n > sequences_max) {
    return absl::InvalidArgumentError(
        StrCat("n is ", request.n, "; at most ", sequences_max, " sequences can be queued"));
  }
  STAFFEL_RETURN_IF_ERROR(Refusal());

  Mailbox& box = *mailbox_;
  std::lock_guard lock(box.mutex);
  if (box.stopping || box.draining) {
    return absl::UnavailableError("the server is shutting down; send the request to another one");
  }
  const int waiting = box.queued + box.waiting;
  if (waiting > 0 && waiting + request.n > options_.max_queue) {
    return absl::ResourceExhaustedError(StrCat(waiting,
                                               " sequences are waiting and the queue holds ",
                                               options_.max_queue, "; try again later"));
  }
  if (!box.live.insert(request.id).second) {
    return absl::InvalidArgumentError(StrCat("request ", request.id.value, " exists already"));
  }
  box.queued += request.n;
  box.commands.push_back(SubmitCommand{std::move(request), std::move(sink)});
  if (progress_ns_ == 0) progress_ns_ = Nanoseconds(clock_->Now());
  box.wake.notify_one();
  return absl::OkStatus();
}

void Engine::Cancel(RequestId request, int index) {
  std::lock_guard lock(mailbox_->mutex);
  if (!mailbox_->live.contains(request)) return;
  mailbox_->commands.push_back(CancelCommand{request, index});
  mailbox_->wake.notify_one();
}

EngineLimits Engine::limits() const {
  return {.max_model_len = options_.scheduler.max_model_len,
          .kv_capacity_tokens = block_count_ * options_.scheduler.block_size,
          .vocab_size = options_.vocab_size,
          .max_queue = options_.max_queue};
}

EngineStats Engine::stats() const {
  EngineStats stats;
  {
    std::lock_guard lock(state_mutex_);
    stats = stats_;
  }
  stats.last_step_age_s = Seconds(StepAge());
  if (const int64_t since_ns = paused_since_ns_; since_ns != 0) {
    const int64_t paused_ns = Nanoseconds(clock_->Now()) - since_ns;
    stats.paused_s += Seconds(std::chrono::nanoseconds(std::max<int64_t>(0, paused_ns)));
  }
  std::lock_guard lock(mailbox_->mutex);
  stats.waiting = mailbox_->waiting + mailbox_->queued;
  return stats;
}

Duration Engine::StepAge() const {
  const int64_t progress_ns = progress_ns_;
  if (progress_ns == 0) return Duration::zero();
  const std::chrono::nanoseconds age(Nanoseconds(clock_->Now()) - progress_ns);
  return std::max(Duration::zero(), std::chrono::duration_cast<Duration>(age));
}

Status Engine::SaidHealth() const {
  std::lock_guard lock(state_mutex_);
  return health_;
}

Status Engine::Refusal() const {
  std::lock_guard lock(state_mutex_);
  return refusal_;
}

Status Engine::health() const {
  STAFFEL_RETURN_IF_ERROR(SaidHealth());
  if (draining_) return absl::UnavailableError("the server is shutting down");
  if (const Duration age = StepAge(); age > options_.stall_timeout) {
    return absl::UnavailableError(StrCat(
        "work is waiting but no step has ended for ",
        std::chrono::duration_cast<std::chrono::seconds>(age).count(), " s; a worker may hang"));
  }
  return absl::OkStatus();
}

void Engine::Drain(Time deadline) {
  std::lock_guard lock(mailbox_->mutex);
  draining_ = mailbox_->draining = true;
  mailbox_->drain_deadline = deadline;
  mailbox_->wake.notify_one();
}

bool Engine::WaitUntilIdle(Time deadline) {
  std::unique_lock lock(mailbox_->mutex);
  return mailbox_->idle.wait_until(lock, deadline, [&] { return mailbox_->live.empty(); });
}

void Engine::Stop() {
  if (std::exchange(stopped_, true)) return;
  {
    std::lock_guard lock(mailbox_->mutex);
    mailbox_->stopping = true;
    mailbox_->wake.notify_one();
  }
  draining_ = true;
  if (thread_.joinable()) thread_.join();
  if (!ended_all_) {
    const Status reason = absl::UnavailableError("the server has stopped");
    SetHealth(reason);
    EndAll(reason);
  }
  while (Turn()) {
  }
}

void Engine::ReportLoss(Status reason) { Post(LossCommand{std::move(reason), false}); }

void Engine::Pause(Status reason) { Post(LossCommand{std::move(reason), true}); }

void Engine::Resume(const EpochLayout& layout) { Post(ResumeCommand{layout}); }

void Engine::FailRequests(Status reason) {
  std::lock_guard lock(mailbox_->mutex);
  mailbox_->commands.push_back(FailCommand{std::move(reason)});
  mailbox_->wake.notify_one();
}

void Engine::Post(Control control) {
  std::lock_guard lock(mailbox_->mutex);
  mailbox_->controls.push_back(std::move(control));
  mailbox_->wake.notify_one();
}

}  // namespace staffel
