// A worker without arithmetic: one rank of one stage. Its KV cells hold what was written: a token
// and the hash of the prefix it was computed in, read back through the block table. It checks every
// plan as strictly as anything a real worker could know.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/digest.h"
#include "staffel/step.h"

namespace staffel::sim {

struct FakeShape {
  int epoch = 1;
  int block_count = 0, block_size = 0, slot_count = 0;
  int stages = 1;
  int group = 1;  // ranks of each stage
};

// What a stage hands to the next: of each row, the hash of the tokens up to it.
using Activations = std::vector<uint64_t>;

class FakeWorker {
 public:
  // samples: of the last stage. Others know only the tokens that plans tell.
  FakeWorker(const FakeShape& shape, bool samples);

  // Runs a plan. A plan that breaks a rule sets violation() and gives an outcome that is not OK.
  // in: null in the first stage. Rows that do not fit the own KV are computed all the same, as
  // numbers would be, and spoil what is drawn.
  StepOutcome Execute(const StepPlan& plan, const Activations* in, Activations& out);
  const std::string& violation() const { return violation_; }

 private:
  struct Cell {
    bool written = false;
    TokenId token = 0;
    uint64_t prefix = 0;  // hash of all tokens up to this one
  };
  struct Mirror {
    NewSequence sequence;  // its tokens grow
    std::vector<BlockId> blocks;
    int computed_end = 0;
    bool awaits_token = false;  // drawn elsewhere
    float pool = 0;             // sum over the prompt's tokens computed so far
  };
  bool Check(bool condition, const std::string& what);
  void TakeKnown(const StepPlan& plan);
  void TakeForced(const StepPlan& plan);
  void Release(const StepPlan& plan);
  void Enter(const StepPlan& plan);
  void Append(const StepPlan& plan);
  void Copy(const StepPlan& plan);
  void Run(const Chunk& chunk, const Activations* in, Activations& out, StepOutcome& outcome);
  void Pool(Mirror& mirror, int position, uint64_t prefix, StepOutcome& outcome) const;
  bool CheckChunk(const Chunk& chunk);
  Cell& CellAt(const Mirror& mirror, int position);
  bool ValidBlock(BlockId block) const;
  Mirror* Find(Slot slot);

  const int epoch_, block_count_, block_size_;
  const bool samples_;
  uint64_t last_step_ = 0;
  std::vector<Cell> cells_;  // [block_count, block_size]
  std::vector<std::optional<Mirror>> mirrors_;
  std::vector<int> tables_with_;  // [block_count]: how many tables hold the block
  MirrorDigest digest_;
  std::string violation_;
};

}  // namespace staffel::sim
