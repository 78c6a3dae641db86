// One rank's worker: applies plans to its mirror, runs the executable on the rows they name, and
// draws the tokens. Owned by a transport's worker thread; one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "staffel/backend.h"
#include "staffel/clock.h"
#include "staffel/communicator.h"
#include "staffel/grammar.h"
#include "staffel/status.h"
#include "staffel/step.h"
#include "worker/grammar_masks.h"
#include "worker/sampler.h"
#include "worker/sequence_mirror.h"

namespace staffel {

// What a worker is for one epoch of placement.
struct WorkerSetup {
  int epoch = 0;
  int vocab = 0;           // columns of the logits
  BackendOptions options;  // that the executable was prepared with
  std::unique_ptr<Executable> executable;
  // Whether this rank has the logits and draws. If not, outcomes are without tokens.
  bool samples = true;
  // Ranks of the replica. In the last stage the one that draws sends each step's tokens to the
  // others at its end, so that the next step may follow at once. On other stages both are empty:
  // plans tell what was drawn.
  std::vector<int> draws_to;  // of the rank that draws
  int draws_from = -1;        // of the others; -1: none
  // The ranks that the executable works with; null: none. Waits for them are not compute_s.
  Communicator* group = nullptr;
  // Of the rank that draws; null: sequences with a grammar end with an error.
  std::shared_ptr<grammar::Grammars> grammars;
};

class Worker {
 public:
  // The clock measures StepOutcome::compute_s; it outlives the worker.
  explicit Worker(const Clock& clock) : clock_(clock) {}

  // Begins an epoch with an empty mirror. InvalidArgument: a setup without executable, vocabulary
  // or KV blocks.
  Status Configure(WorkerSetup setup);

  // Begins another epoch with the executable of the last one, whose KV is void. FailedPrecondition:
  // not configured.
  Status BeginEpoch(int epoch);

  // Computes one step. status of the outcome: Aborted for a plan of another epoch, which changes
  // nothing; any other error ends the epoch here, and later plans of it return the same error.
  StepOutcome Run(const StepPlan& plan);

 private:
  // What is done with a row of logits.
  struct LogitsRead {
    Slot slot;
    int position;  // of the row, in its sequence
    bool draws;    // else: the log-probability of the prompt token that follows
  };

  void ResetMirror();
  void FollowGrammars(const StepPlan& plan);
  Status Compute(const StepPlan& plan, StepOutcome& outcome);
  double WaitSeconds() const;
  Status LayOutRows(const StepPlan& plan);
  void ReadLogits(const StepPlan& plan, StepOutcome& outcome);
  void ReadHidden(const StepPlan& plan, StepOutcome& outcome);
  Status SendDraws(const StepOutcome& outcome);
  Status TakeDraws(const StepPlan& plan);
  SampledToken DrawToken(Slot slot, absl::Span<float> logits);

  const Clock& clock_;
  WorkerSetup setup_;
  SequenceMirror mirror_;
  Sampler sampler_;
  GrammarMasks masks_;
  Status failed_ = absl::FailedPreconditionError("the worker has not been configured");

  // Of the step being run; kept to allocate nothing in the long run.
  std::vector<TokenId> tokens_;                    // [T]
  std::vector<int32_t> positions_;                 // [T]
  std::vector<BatchTensors::Sequence> sequences_;  // [S]
  std::vector<int32_t> sampled_rows_;              // [R]
  std::vector<LogitsRead> reads_;                  // [R]
  std::vector<Slot> draw_slots_;                   // that draw
  std::vector<float> draws_;  // token ids, bit for bit: a communicator moves floats
};

}  // namespace staffel
