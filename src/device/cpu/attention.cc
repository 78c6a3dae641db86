// The parts of CpuExecutable that touch the KV store: rotation tables, block copies, attention.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/cpu/executable.h"

namespace staffel::cpu {
namespace {

// Rotation angles are computed for this many positions at a time: a millisecond or so, now and
// then, instead of a table for the longest context at the start.
constexpr int kRopeFill = 512;

const int32_t* Raw(absl::Span<const BlockId> blocks) {
  static_assert(sizeof(BlockId) == sizeof(int32_t));
  return reinterpret_cast<const int32_t*>(blocks.data());
}

}  // namespace

void CpuExecutable::CopyBlocks() {
  if (batch_->block_copies.empty() || parts_.program.kv.layers == 0) return;
  const KvShape& kv = parts_.program.kv;
  const int64_t bytes = KvBlockBytes(kv, parts_.options.block_size) / kv.layers;
  // Copies run in order within a layer: a target may be a later copy's source.
  pool_.Run(kv.layers, [&](int layer, int) {
    auto* data = reinterpret_cast<uint8_t*>(Kv(layer).data);
    for (const BlockCopy& copy : batch_->block_copies) {
      if (copy.source == copy.target) continue;
      std::memcpy(data + copy.target.value * bytes, data + copy.source.value * bytes, bytes);
    }
  });
}

kernels::KvLayer CpuExecutable::Kv(int layer) const {
  const KvShape& kv = parts_.program.kv;
  const int64_t stride = KvLayerStride(kv, parts_.options.block_size, parts_.options.block_count);
  return {.data = reinterpret_cast<uint16_t*>(parts_.kv_memory.data() + layer * stride),
          .kv_heads = kv.kv_heads,
          .head_dim = kv.head_dim};
}

void CpuExecutable::FillRopeTables(int position_end) {
  if (position_end <= rope_positions_) return;
  const int end = std::min(parts_.options.max_positions,
                           (position_end + kRopeFill - 1) / kRopeFill * kRopeFill);
  for (size_t t = 0; t < rope_tables_.size(); ++t) {
    const RopeTable& table = parts_.plan.rope_tables[t];
    const float* factors = parts_.weights.vector(table.frequency_factors);
    const int pairs = table.rope_dim / 2;
    for (int i = 0; i < pairs; ++i) {
      const double turn = table.position_scale * std::pow(table.base, -2.0 * i / table.rope_dim) /
                          (factors != nullptr ? factors[i] : 1.0);
      for (int position = rope_positions_; position < end; ++position) {
        float* pair = rope_tables_[t] + (int64_t{position} * pairs + i) * 2;
        pair[0] = static_cast<float>(std::cos(position * turn));
        pair[1] = static_cast<float>(std::sin(position * turn));
      }
    }
  }
  rope_positions_ = end;
}

void CpuExecutable::RotateAndStore(const AttentionLaunch& launch, int row_begin, int row_end,
                                   int kv_head_begin, int kv_head_end) {
  const auto& op = std::get<RopeAndStoreKvOp>(parts_.program.ops[launch.rope]);
  const kernels::KvLayer kv = Kv(op.layer);
  kernels_.rope_store({.qkv = F32(launch.qkv),
                       .qkv_stride = Cols(launch.qkv),
                       .row_begin = row_begin,
                       .row_end = row_end,
                       .q_head_begin = op.heads.QueriesOf(kv_head_begin).begin,
                       .q_head_end = op.heads.QueriesOf(kv_head_end - 1).end,
                       .kv_head_begin = kv_head_begin,
                       .kv_head_end = kv_head_end,
                       .q_heads = op.heads.q_heads,
                       .rope_dim = op.rope_dim,
                       .pairs = op.style == RopeStyle::kInterleaved
                                    ? kernels::RopePairs::kInterleaved
                                    : kernels::RopePairs::kHalves,
                       .cos_sin = rope_tables_[launch.table],
                       .positions = batch_->positions.data(),
                       .sub_blocks = step_rows_.sub_blocks(),
                       .q_norm = parts_.weights.vector(op.q_norm),
                       .k_norm = parts_.weights.vector(op.k_norm),
                       .norm_eps = op.norm_eps,
                       .kv = &kv});
}

void CpuExecutable::Attend(const AttentionLaunch& launch, const BatchTensors::Sequence& sequence,
                           int kv_head, int begin, int end, const uint16_t* next) {
  const auto& op = std::get<PagedAttentionOp>(parts_.program.ops[launch.attend]);
  const kernels::KvLayer kv = Kv(op.layer);
  kernels::AttentionParams params{.kv = &kv,
                                  .kv_head = kv_head,
                                  .blocks = Raw(sequence.blocks),
                                  .block_size = parts_.options.block_size,
                                  .rows = end - begin,
                                  .window = op.window,
                                  .scale = op.scale,
                                  .exact = parts_.options.activations == ActivationType::kF32,
                                  .next = next};
  const Range heads = op.heads.QueriesOf(kv_head);
  for (int i = begin; i < end; ++i) {
    const int token = i / heads.size(), row = sequence.row_begin + token;
    const int64_t head = heads.begin + i % heads.size();
    params.q[i - begin] = F32(launch.qkv) + int64_t{row} * Cols(launch.qkv) + head * op.head_dim;
    params.out[i - begin] = F32(launch.out) + int64_t{row} * Cols(launch.out) + head * op.head_dim;
    params.limit[i - begin] = sequence.start + token + 1;
  }
  kernels_.attention(params);
}

const uint16_t* CpuExecutable::FirstKv(const AttentionLaunch& launch,
                                       const BatchTensors::Sequence& sequence, int kv_head) const {
  const auto& op = std::get<PagedAttentionOp>(parts_.program.ops[launch.attend]);
  const int block_size = parts_.options.block_size;
  const int first = op.window > 0 ? std::max(0, sequence.start + 1 - op.window) : 0;
  const int64_t sub_block =
      int64_t{sequence.blocks[first / block_size].value} * (block_size / kernels::kKvTokens) +
      first % block_size / kernels::kKvTokens;
  const kernels::KvLayer kv = Kv(op.layer);
  return kv.data + sub_block * kernels::KvSubBlockElements(kv.kv_heads, kv.head_dim) +
         kv_head * (kernels::KvSubBlockElements(kv.kv_heads, kv.head_dim) / kv.kv_heads);
}

// All query heads of one KV head of a sequence's only row.
void CpuExecutable::AttendRow(const AttentionLaunch& launch, int row, int kv_head,
                              const uint16_t* next) {
  const int heads = step_rows_.heads().QueriesOf(kv_head).size();
  for (int begin = 0; begin < heads; begin += kernels::kTileRows) {
    Attend(launch, batch_->sequences[row], kv_head, begin,
           std::min(heads, begin + kernels::kTileRows), next);
  }
}

Status CpuExecutable::Execute(const AttentionLaunch& launch, int rows) {
  const KvShape& kv = parts_.program.kv;
  const int kv_heads = kv.kv_heads;
  // Keys and values that are read, at most.
  const int64_t bytes = int64_t{2} * sizeof(uint16_t) * kv.head_dim * step_rows_.position_end() *
                        static_cast<int64_t>(step_rows_.attend_pieces().size());
  if (launch.rope >= 0 && launch.attend >= 0 && step_rows_.one_row_each()) {
    // A piece rotates, stores and attends: one (row, KV head), or one row where there are enough.
    const bool by_row = rows >= 2 * pool_.size();
    RunPieces(by_row ? rows : rows * kv_heads, bytes, [&](int piece, int) {
      const int row = by_row ? piece : piece / kv_heads;
      const int head_begin = by_row ? 0 : piece % kv_heads;
      const int head_end = by_row ? kv_heads : head_begin + 1;
      RotateAndStore(launch, row, row + 1, head_begin, head_end);
      for (int head = head_begin; head < head_end; ++head) {
        const int next_row = std::min(rows - 1, head + 1 < kv_heads ? row : row + 1);
        AttendRow(launch, row, head,
                  FirstKv(launch, batch_->sequences[next_row], (head + 1) % kv_heads));
      }
    });
    return absl::OkStatus();
  }
  if (launch.rope >= 0) {
    const auto& pieces = step_rows_.store_pieces();
    RunPieces(static_cast<int>(pieces.size()), int64_t{rows} * Cols(launch.qkv) * sizeof(float),
              [&](int p, int) {
                RotateAndStore(launch, pieces[p].row_begin, pieces[p].row_end, 0, kv_heads);
              });
  }
  if (launch.attend >= 0) {
    const auto& pieces = step_rows_.attend_pieces();
    RunPieces(static_cast<int>(pieces.size()), bytes, [&](int p, int) {
      const StepRows::AttendPiece& piece = pieces[p];
      Attend(launch, batch_->sequences[piece.sequence], piece.kv_head, piece.begin, piece.end,
             nullptr);
    });
  }
  return absl::OkStatus();
}

}  // namespace staffel::cpu
