// Sequences that wait for a slot, in two orders at once: by turn and by work left. A sequence's
// tokens and planned count must not change while it is in here. Pure, one thread.
#pragma once

#include "absl/container/btree_set.h"
#include "base/check.h"
#include "sched/sequence.h"

namespace staffel::sched {

class WaitingQueue {
 public:
  bool empty() const { return by_order_.empty(); }
  int size() const { return static_cast<int>(by_order_.size()); }
  Sequence* first() const { return *by_order_.begin(); }
  const absl::btree_set<Sequence*, ByOrder>& by_order() const { return by_order_; }
  const absl::btree_set<Sequence*, ByWork>& by_work() const { return by_work_; }

  void Insert(Sequence* sequence) {
    STAFFEL_CHECK(by_order_.insert(sequence).second);
    STAFFEL_CHECK(by_work_.insert(sequence).second);
  }
  void Erase(Sequence* sequence) {
    STAFFEL_CHECK_EQ(by_order_.erase(sequence), 1u);
    STAFFEL_CHECK_EQ(by_work_.erase(sequence), 1u) << "its work changed while it waited";
  }

 private:
  absl::btree_set<Sequence*, ByOrder> by_order_;
  absl::btree_set<Sequence*, ByWork> by_work_;
};

}  // namespace staffel::sched
