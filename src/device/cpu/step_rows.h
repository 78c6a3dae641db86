// What attention needs to know of the rows of one step, worked out once and used by all layers.
#pragma once

#include <cstdint>
#include <vector>

#include "staffel/backend.h"
#include "staffel/program.h"

namespace staffel::cpu {

class StepRows {
 public:
  // Rows that are rotated and stored by one thread: whole sub-blocks where there are that many.
  struct StorePiece {
    int row_begin, row_end;
  };
  // (token, query head of a KV head) pairs [begin, end) of a sequence, at most 8: pair i is row
  // row_begin + i / n and head i % n of the n query heads that read the KV head.
  struct AttendPiece {
    int sequence;
    int kv_head;
    int begin, end;
  };

  // Reserves for steps of up to `max_rows` rows; afterwards nothing allocates.
  StepRows(int max_rows, int block_size, const HeadGroups& heads);

  void Set(const BatchTensors& batch);

  // Every sequence has one row: a row can rotate, store and attend at once, since no other row of
  // the step reads what it stores.
  bool one_row_each() const { return one_row_each_; }
  const HeadGroups& heads() const { return heads_; }
  const std::vector<StorePiece>& store_pieces() const { return store_pieces_; }
  // The longest first.
  const std::vector<AttendPiece>& attend_pieces() const { return attend_pieces_; }
  // Sub-block of 16 tokens in which the row's token is stored.
  const int32_t* sub_blocks() const { return sub_blocks_.data(); }
  // 1 + the largest position of the step.
  int position_end() const { return position_end_; }

 private:
  const int block_size_;
  const HeadGroups heads_;
  bool one_row_each_ = false;
  int position_end_ = 0;
  std::vector<StorePiece> store_pieces_;
  std::vector<AttendPiece> attend_pieces_;
  std::vector<int32_t> sub_blocks_;
};

}  // namespace staffel::cpu
