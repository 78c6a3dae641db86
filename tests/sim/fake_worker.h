// A worker without arithmetic. Its KV cells hold what was written: a token and the hash of the
// prefix it was computed in, read back through the block table. It checks every plan as strictly as
// anything a real worker could know.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/digest.h"
#include "staffel/step.h"

namespace staffel::sim {

class FakeWorker {
 public:
  FakeWorker(int epoch, int block_count, int block_size, int slot_count);

  // Runs a plan. A plan that breaks a rule sets violation() and gives an outcome that is not OK.
  StepOutcome Execute(const StepPlan& plan);
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
  };
  bool Check(bool condition, const std::string& what);
  void Release(const StepPlan& plan);
  void Enter(const StepPlan& plan);
  void Append(const StepPlan& plan);
  void Copy(const StepPlan& plan);
  void Run(const StepPlan& plan, const Chunk& chunk, StepOutcome& outcome);
  bool CheckChunk(const Chunk& chunk);
  Cell& CellAt(const Mirror& mirror, int position);
  int TablesWith(BlockId block) const;
  bool ValidBlock(BlockId block) const;
  Mirror* Find(Slot slot);

  const int epoch_, block_count_, block_size_;
  uint64_t last_step_ = 0;
  std::vector<Cell> cells_;  // [block_count, block_size]
  std::vector<std::optional<Mirror>> mirrors_;
  std::vector<int> tables_with_;  // [block_count]: how many tables hold the block
  MirrorDigest digest_;
  std::string violation_;
};

}  // namespace staffel::sim
