// The engine: one thread between many clients and one replica's workers. Takes requests and
// outcomes from mailboxes, lets the scheduler decide, sends plans, hands events to sinks. It never
// waits for a client, and costs no CPU when idle.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "sched/scheduler.h"
#include "staffel/clock.h"
#include "staffel/request.h"
#include "staffel/transport.h"

namespace staffel {

// What changes with the workers.
struct EpochLayout {
  int epoch = 0;
  int block_count = 0;  // KV blocks: the least of all ranks
  int stages = 1;       // of the pipeline
  int ranks = 1;        // of all stages; with more than one, plans tell them what was drawn
};

struct EngineOptions {
  sched::Config scheduler;    // its parts that follow from stages, ranks and depth are overwritten
  int stages = 1, ranks = 1;  // of epoch 1, as in EpochLayout
  int vocab_size = 0;
  // Waiting sequences, those included that the next step will take. A request is always let into
  // an empty queue, however many sequences it has.
  int max_queue = 256;
  // Steps in flight with one rank: 1 waits for each outcome; one more hides the master's own work.
  // With several ranks of one stage one more at least: it hides the ways of outcome and plan.
  // With several stages it is their number. Another one would keep stages busy during the master's
  // own work as well, but at fewer sequences a step, and would pay only where reading a stage's
  // weights takes less time than that work.
  int depth = 1;
  // Requests taken between two steps: bounds the pause that a flood of them makes.
  int submits_per_turn_max = 64;
  // health() reports a stall when work waits and no step has ended for that long.
  Duration stall_timeout = std::chrono::seconds(10);
  // A lost worker: false ends every request with kError and the engine stays failed; true keeps
  // them, with their tokens, until Resume.
  bool heal = false;
  // Engine thread; once for each loss, not for Pause, with the epoch that it ended.
  std::function<void(int epoch, const Status&)> on_loss;
  // Engine thread; after sinks have got their events and the next plan is on its way. Threads that
  // carry the events on are best woken here: before, they would hold up the plan.
  std::function<void()> on_delivered;
  bool check_invariants = false;  // after every event, not only when idle
};

class Engine final : public EngineClient {
 public:
  // `transport` and `clock` must outlive the engine. InvalidArgument: options that cannot be.
  static Result<std::unique_ptr<Engine>> Create(EngineOptions options, Transport* transport,
                                                const Clock* clock);
  ~Engine() override;  // Stop()

  // Runs Turn on a thread of its own from now on. Without it the caller turns.
  void Start();
  // One pass: outcomes, commands, plans, events. Returns whether anything was done. Engine thread.
  bool Turn();

  // Any thread from here on.
  Status Submit(GenerateRequest request, std::shared_ptr<EventSink> sink) override;
  void Cancel(RequestId request, int index = -1) override;
  EngineLimits limits() const override;
  EngineStats stats() const override;
  Status health() const override;  // never waits for the engine thread

  // Refuses new requests from now on; those still running at `deadline` end with kError.
  void Drain(Time deadline);
  // Waits until no request is left, at most until `deadline`; whether that is so.
  bool WaitUntilIdle(Time deadline);
  // Ends every request with kError and joins the thread. After this neither the transport nor the
  // clock is touched again, so they may end before the engine. Once is enough; the destructor calls
  // it.
  void Stop();

  // A worker is lost, noticed by other means than a step's outcome (heartbeat).
  void ReportLoss(Status reason);
  // With options.heal: sends no more steps until Resume, as after a loss, because the workers are
  // about to change. health() says the reason.
  void Pause(Status reason);
  // With options.heal, after a loss or Pause: the workers of layout.epoch (greater than the last;
  // else nothing happens) are ready, with empty KV pools. Every request goes on from its tokens.
  void Resume(const EpochLayout& layout);
  // Ends every request that was submitted before with kError and this reason. The engine lives on:
  // if it has no workers now it refuses requests, with the same reason, until Resume.
  void FailRequests(Status reason);

 private:
  struct SubmitCommand {
    GenerateRequest request;
    std::shared_ptr<EventSink> sink;
  };
  struct CancelCommand {
    RequestId request;
    int index;
  };
  struct FailCommand {
    Status reason;
  };
  struct LossCommand {
    Status reason;
    bool planned;
  };
  struct ResumeCommand {
    EpochLayout layout;
  };
  using Command = std::variant<SubmitCommand, CancelCommand, FailCommand>;
  using Control = std::variant<LossCommand, ResumeCommand>;

  // Shared with the transport's thread, which may still deliver when the engine is gone.
  struct Mailbox {
    std::mutex mutex;  // held for a few moves only
    std::condition_variable wake;
    // Guarded by mutex:
    std::deque<Command> commands;
    std::vector<Control> controls;  // before the commands
    std::vector<StepOutcome> outcomes;
    bool stopping = false;
    bool draining = false;
    Time drain_deadline = Time::max();
    int queued = 0;                       // sequences in `commands` or in the Turn that took them
    int waiting = 0, running = 0;         // sequences in the scheduler after the last Turn
    absl::flat_hash_set<RequestId> live;  // requests without their last event
    std::condition_variable idle;         // live became empty
  };
  struct SinkEntry {
    std::shared_ptr<EventSink> sink;
    int unfinished;  // sequences
  };

  Engine(EngineOptions options, Transport* transport, const Clock* clock);
  void RunThread();
  void Post(Control control);
  void Take();
  void HandleOutcome(StepOutcome outcome);
  void Handle(SubmitCommand& command);
  void Handle(CancelCommand& command);
  void Handle(FailCommand& command);
  void Handle(LossCommand& command);
  void Handle(ResumeCommand& command);
  void HandleLoss(const Status& reason);
  void BeginPause(const Status& reason);
  void EndAll(const Status& reason);
  void EnforceDeadline(Time now);
  bool SendPlans();
  bool DeliverEvents();  // whether there were any
  void PublishState();
  void CheckAfterEvent() const;
  void SetHealth(Status status);
  void SetRefusal(Status status);
  Status SaidHealth() const;  // what the engine thread has said last
  Status Refusal() const;     // of new requests
  Duration StepAge() const;

  const EngineOptions options_;
  Transport* const transport_;
  const Clock* const clock_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::thread thread_;
  bool stopped_ = false;  // of the thread that calls Stop

  // Engine thread only.
  sched::Scheduler scheduler_;
  absl::flat_hash_map<RequestId, SinkEntry> sinks_;
  std::vector<SeqEvent> events_;
  std::vector<Command> taken_commands_;
  std::vector<Control> taken_controls_;
  std::vector<StepOutcome> taken_outcomes_;
  std::vector<RequestId> ended_;
  int taken_sequences_ = 0;
  int depth_;            // steps in flight
  bool paused_ = false;  // between a loss and Resume, or for ever
  bool ended_all_ = false;
  Time busy_since_{};  // end of the last step, or when work came
  EngineStats totals_;

  // Written by the engine thread, read by any.
  std::atomic<int> block_count_;
  std::atomic<bool> draining_{false};
  // When the last step ended while work waits, or when work came; 0: idle. Nanoseconds of the
  // clock.
  std::atomic<int64_t> progress_ns_{0};
  std::atomic<int64_t> paused_since_ns_{0};  // 0: it is not
  mutable std::mutex state_mutex_;           // held for one copy
  Status health_, refusal_;                  // guarded by state_mutex_
  EngineStats stats_;                        // guarded by state_mutex_
};

}  // namespace staffel
