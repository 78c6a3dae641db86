#include "device/cpu/step_rows.h"

#include <algorithm>

#include "kernels/api/cpu_kernels.h"

namespace staffel::cpu {

StepRows::StepRows(int max_rows, int block_size, const HeadGroups& heads)
    : block_size_(block_size), heads_(heads) {
  store_pieces_.reserve(max_rows);
  // Each sequence of n rows has ceil(n * heads / 8) pieces a KV head.
  attend_pieces_.reserve(size_t(max_rows) * heads.kv_heads *
                         (heads.group_size / kernels::kTileRows + 1));
  sub_blocks_.reserve(max_rows);
}

void StepRows::Set(const BatchTensors& batch) {
  store_pieces_.clear();
  attend_pieces_.clear();
  sub_blocks_.clear();
  one_row_each_ = true;
  position_end_ = 0;
  constexpr int kTokens = kernels::kKvTokens;
  int piece_begin = 0;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const BatchTensors::Sequence& sequence = batch.sequences[s];
    one_row_each_ &= sequence.row_count == 1;
    position_end_ = std::max(position_end_, sequence.start + sequence.row_count);
    for (int i = 0; i < sequence.row_count; ++i) {
      const int position = sequence.start + i, row = sequence.row_begin + i;
      sub_blocks_.push_back(sequence.blocks[position / block_size_].value *
                                (block_size_ / kTokens) +
                            position % block_size_ / kTokens);
      const bool may_cut = i == 0 || position % kTokens == 0;
      if (may_cut && row - piece_begin >= kTokens) {
        store_pieces_.push_back({piece_begin, row});
        piece_begin = row;
      }
    }
    const int pairs_max = sequence.row_count * heads_.group_size;
    for (int begin = 0; begin < pairs_max; begin += kernels::kTileRows) {
      for (int kv_head = 0; kv_head < heads_.kv_heads; ++kv_head) {
        const int pairs = sequence.row_count * heads_.QueriesOf(kv_head).size();
        if (begin >= pairs) continue;
        attend_pieces_.push_back(
            {static_cast<int>(s), kv_head, begin, std::min(pairs, begin + kernels::kTileRows)});
      }
    }
  }
  const int rows = static_cast<int>(batch.tokens.size());
  if (piece_begin < rows) store_pieces_.push_back({piece_begin, rows});
  // Later rows see more keys. What remains for stealing at the end is then short.
  std::reverse(attend_pieces_.begin(), attend_pieces_.end());
}

}  // namespace staffel::cpu
