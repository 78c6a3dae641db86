// What attention needs to know of the rows of one step, worked out once and used by all layers.
#pragma once

#include <cstdint>
#include <vector>

#include "staffel/backend.h"

namespace staffel::cpu {

class StepRows {
 public:
  // Rows that are rotated and stored by one thread: whole sub-blocks where there are that many.
  struct StorePiece {
    int row_begin, row_end;
  };
  // (token, query head of a KV group) pairs [begin, end) of a sequence, at most 8: pair i is row
  // row_begin + i / heads_per_kv, head i % heads_per_kv of the group.
  struct AttendPiece {
    int sequence;
    int begin, end;
  };

  // Reserves for steps of up to `max_rows` rows; afterwards nothing allocates.
  StepRows(int max_rows, int block_size, int heads_per_kv);

  void Set(const BatchTensors& batch);

  // Every sequence has one row: a row can rotate, store and attend at once, since no other row of
  // the step reads what it stores.
  bool one_row_each() const { return one_row_each_; }
  int heads_per_kv() const { return heads_per_kv_; }
  const std::vector<StorePiece>& store_pieces() const { return store_pieces_; }
  // The longest first.
  const std::vector<AttendPiece>& attend_pieces() const { return attend_pieces_; }
  // Sub-block of 16 tokens in which the row's token is stored.
  const int32_t* sub_blocks() const { return sub_blocks_.data(); }
  // 1 + the largest position of the step.
  int position_end() const { return position_end_; }

 private:
  const int block_size_, heads_per_kv_;
  bool one_row_each_ = false;
  int position_end_ = 0;
  std::vector<StorePiece> store_pieces_;
  std::vector<AttendPiece> attend_pieces_;
  std::vector<int32_t> sub_blocks_;
};

}  // namespace staffel::cpu
