#include "device/cpu/executable.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "device/program_check.h"

namespace staffel::cpu {
namespace {

// A worker that has ended its share starts the reads of its share of the next matrix: as much as
// hides the wait for memory at the start of the next launch, and fits the L2 beside its inputs.
constexpr int kPrefetchBytes = 24 << 10;
// Pieces of a product read at least this much (a smaller one costs more to hand out than it does),
// and at most that much (a core that is taken away stalls the step by one piece).
constexpr int64_t kPieceBytesMin = 8 << 10;
constexpr int64_t kPieceBytesMax = 256 << 10;
constexpr int kPiecesPerThread = 8;
// With this many tiles every group is work enough for a piece, and the shortest pieces end
// together.
constexpr int kManyTiles = 8;
// Inputs of a piece stay in half of a core's L2 while its weights stream past.
constexpr int64_t kInputBytesMax = 512 << 10;

HeadGroups Heads(const Program& program) {
  for (const Op& op : program.ops) {
    if (const auto* attend = std::get_if<PagedAttentionOp>(&op)) return attend->heads;
  }
  return {};
}

int CeilDivide(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

}  // namespace

CpuExecutable::CpuExecutable(ExecutableParts parts)
    : parts_(std::move(parts)),
      kernels_(*parts_.kernels),
      pool_(*parts_.pool),
      vocab_(EmbeddingRows(parts_.program)),
      step_rows_(parts_.options.max_rows, parts_.options.block_size, Heads(parts_.program)),
      times_(parts_.plan.launches.size()) {
  BindBuffers();
  LinkPrefetches();
}

void CpuExecutable::BindBuffers() {
  for (const Buffer& buffer : parts_.plan.buffers) {
    kernels::Activations activations;
    if (!buffer.is_f32_rows) {
      activations = {.form = buffer.form,
                     .cols = buffer.cols,
                     .data = parts_.step_memory.data() + buffer.offset};
    }
    activations_.push_back(activations);
  }
  size_t segments = 0;
  for (const Launch& launch : parts_.plan.launches) {
    if (const auto* matmul = std::get_if<MatmulLaunch>(&launch.kind)) {
      segments = std::max(segments, matmul->segments.size());
    }
  }
  matmuls_.reserve(segments);
  auto* table = reinterpret_cast<float*>(parts_.rope_memory.data());
  for (const RopeTable& rope : parts_.plan.rope_tables) {
    rope_tables_.push_back(table);
    table += int64_t{parts_.options.max_positions} * rope.rope_dim;
  }
}

void CpuExecutable::LinkPrefetches() {
  const std::vector<Launch>& launches = parts_.plan.launches;
  next_matrix_.assign(launches.size(), nullptr);
  const kernels::PackedMatrix* next = nullptr;
  for (size_t i = launches.size(); i-- > 0;) {
    next_matrix_[i] = next;
    if (const auto* matmul = std::get_if<MatmulLaunch>(&launches[i].kind)) {
      next = &parts_.weights.matrix(matmul->segments[0].matrix);
    } else if (const auto* gated = std::get_if<GatedLaunch>(&launches[i].kind)) {
      next = &parts_.weights.matrix(gated->gate);
    }
  }
}

float* CpuExecutable::F32(BufferId id) const {
  if (id == BufferId::kNone) return nullptr;
  return reinterpret_cast<float*>(parts_.step_memory.data() + parts_.plan.buffer(id).offset);
}

absl::Span<float> CpuExecutable::logits(int row) {
  const int64_t cols = Cols(parts_.plan.logits);
  return {F32(parts_.plan.logits) + row * cols, static_cast<size_t>(cols)};
}

absl::Span<const float> CpuExecutable::hidden(int row) {
  const int64_t cols = Cols(parts_.plan.hidden);
  return {F32(parts_.plan.hidden) + row * cols, static_cast<size_t>(cols)};
}

Status CpuExecutable::Run(const BatchTensors& batch) {
  STAFFEL_RETURN_IF_ERROR(CheckBatch(batch, parts_.options, vocab_));
  batch_ = &batch;
  CopyBlocks();
  step_rows_.Set(batch);
  FillRopeTables(step_rows_.position_end());
  for (size_t i = 0; i < activations_.size(); ++i) {
    activations_[i].rows = Rows(parts_.plan.buffers[i].rows);
  }
  using Clock = std::chrono::steady_clock;
  auto before = parts_.timing ? Clock::now() : Clock::time_point();
  const std::vector<Launch>& launches = parts_.plan.launches;
  for (launch_index_ = 0; launch_index_ < static_cast<int>(launches.size()); ++launch_index_) {
    const Launch& launch = launches[launch_index_];
    if (const int rows = Rows(launch.rows); rows > 0) {
      STAFFEL_RETURN_IF_ERROR(
          std::visit([&](const auto& kind) { return Execute(kind, rows); }, launch.kind));
    }
    if (parts_.timing) {
      const auto now = Clock::now();
      times_[launch_index_].nanoseconds += std::chrono::nanoseconds(now - before).count();
      ++times_[launch_index_].runs;
      before = now;
    }
    if (parts_.options.trace) Trace(launch);
  }
  ++steps_;
  return absl::OkStatus();
}

void CpuExecutable::Trace(const Launch& launch) {
  for (int op : launch.completed_ops) {
    for (ValueId id : WrittenValues(parts_.program.ops[op])) {
      const auto& buffers = parts_.plan.buffers;
      const auto found = std::find_if(buffers.begin(), buffers.end(), [&](const Buffer& buffer) {
        return buffer.value == id && buffer.is_f32_rows;
      });
      STAFFEL_CHECK(found != buffers.end()) << "every value has f32 rows while tracing";
      const auto buffer = static_cast<BufferId>(found - buffers.begin());
      const int rows = Rows(found->rows);
      parts_.options.trace(
          {.op = op, .value = id, .rows = rows, .cols = found->cols, .data = Span(buffer, rows)});
    }
  }
}

Status CpuExecutable::Execute(const EmbedLaunch& launch, int rows) {
  const int cols = Cols(launch.out);
  float* out = F32(launch.out);
  constexpr int kRowsPerPiece = 4;
  const int64_t bytes = int64_t{rows} * cols * sizeof(float);
  RunPieces(CeilDivide(rows, kRowsPerPiece), bytes, [&](int piece, int) {
    const int end = std::min(rows, (piece + 1) * kRowsPerPiece);
    for (int row = piece * kRowsPerPiece; row < end; ++row) {
      float* to = out + int64_t{row} * cols;
      if (launch.matrix != MatrixId::kNone) {
        kernels_.unpack_row(parts_.weights.matrix(launch.matrix), batch_->tokens[row], launch.scale,
                            to);
      } else {
        kernels_.decode_row(parts_.weights.stored(launch), batch_->tokens[row], launch.scale, to);
      }
    }
  });
  return absl::OkStatus();
}

Status CpuExecutable::Execute(const PrepareLaunch& launch, int rows) {
  const int cols = Cols(launch.residual);
  const Weights& weights = parts_.weights;
  const kernels::PrepareParams params{
      .rows = rows,
      .cols = cols,
      .residual = F32(launch.residual),
      .residual_stride = cols,
      .delta = F32(launch.delta),
      .delta_stride = cols,
      .post_norm = weights.vector(launch.post_norm),
      .norm = weights.vector(launch.norm),
      .eps = launch.eps,
      .out = launch.out == BufferId::kNone ? nullptr : &Act(launch.out),
      .out_f32 = F32(launch.out_f32),
      .out_f32_stride = cols};
  // A piece is a whole tile: its rows share cache lines in the activation forms.
  const int64_t bytes = int64_t{rows} * cols * sizeof(float);
  RunPieces(kernels::Tiles(rows), bytes, [&](int tile, int) {
    kernels::PrepareParams piece = params;
    piece.tile_begin = tile;
    piece.tile_end = tile + 1;
    kernels_.prepare(piece);
  });
  return absl::OkStatus();
}

void CpuExecutable::PrefetchNextWeights(int worker) const {
  const kernels::PackedMatrix* next = next_matrix_[launch_index_];
  if (next == nullptr) return;
  const int groups = kernels::Groups(next->rows);
  const uint8_t* at = next->data + pool_.ShareBegin(groups, worker) * next->group_stride_bytes;
  for (int i = 0; i < kPrefetchBytes; i += 64) __builtin_prefetch(at + i, 0, 2);
}

template <class F>
void CpuExecutable::RunProduct(int groups, int granule, int64_t group_bytes,
                               const kernels::Activations& in, F&& f) {
  int per_piece = groups / (pool_.size() * kPiecesPerThread);
  per_piece = std::max(per_piece, CeilDivide(kPieceBytesMin, group_bytes));
  per_piece = std::min(per_piece, CeilDivide(kPieceBytesMax, group_bytes));
  const int tiles = kernels::Tiles(in.rows);
  if (tiles >= kManyTiles) per_piece = 1;
  per_piece = CeilDivide(per_piece, granule) * granule;
  const int spans = CeilDivide(kernels::ActivationBytes(in.form, in.rows, in.cols), kInputBytesMax);
  const int tiles_per_span = CeilDivide(tiles, std::min(spans, tiles));
  const int group_pieces = CeilDivide(groups, per_piece);
  const int pieces = group_pieces * CeilDivide(tiles, tiles_per_span);
  // A tile's arithmetic takes about as long as one read of the weights.
  const int64_t bytes = groups * group_bytes * tiles;
  RunPieces(pieces, bytes, [&](int piece, int worker) {
    if (piece + 1 == pool_.ShareBegin(pieces, worker + 1)) PrefetchNextWeights(worker);
    const int group = piece % group_pieces * per_piece;
    const int tile = piece / group_pieces * tiles_per_span;
    f(group, std::min(groups, group + per_piece), tile, std::min(tiles, tile + tiles_per_span));
  });
}

Status CpuExecutable::Execute(const MatmulLaunch& launch, int rows) {
  const int out_cols = Cols(launch.out);
  int64_t bytes = 0;
  matmuls_.clear();
  for (const MatmulLaunch::Segment& segment : launch.segments) {
    const kernels::PackedMatrix& matrix = parts_.weights.matrix(segment.matrix);
    bytes += kernels::Groups(matrix.rows) * matrix.group_stride_bytes;
    matmuls_.push_back({.weight = &matrix,
                        .in = &Act(segment.in),
                        .bias = parts_.weights.bias(segment.matrix),
                        .accumulate = launch.accumulate,
                        .out = F32(launch.out) + segment.column,
                        .out_stride = out_cols});
  }
  const kernels::Activations& in = *matmuls_[0].in;
  RunProduct(launch.groups, 1, std::max<int64_t>(1, bytes / launch.groups), in,
             [&](int group_begin, int group_end, int tile_begin, int tile_end) {
               for (size_t s = 0; s < matmuls_.size(); ++s) {
                 const int first = launch.segments[s].group_begin;
                 const int groups = kernels::Groups(matmuls_[s].weight->rows);
                 kernels::MatmulParams piece = matmuls_[s];
                 piece.group_begin = std::max(0, group_begin - first);
                 piece.group_end = std::min(groups, group_end - first);
                 piece.tile_begin = tile_begin;
                 piece.tile_end = tile_end;
                 if (piece.group_begin < piece.group_end) kernels_.matmul(piece);
               }
             });
  return absl::OkStatus();
}

Status CpuExecutable::Execute(const GatedLaunch& launch, int rows) {
  const kernels::PackedMatrix& gate = parts_.weights.matrix(launch.gate);
  const kernels::Activations& in = Act(launch.in);
  const kernels::GatedMatmulParams params{
      .gate = &gate,
      .up = &parts_.weights.matrix(launch.up),
      .in = &in,
      .function = launch.function,
      .out = launch.out == BufferId::kNone ? nullptr : &Act(launch.out),
      .out_f32 = F32(launch.out_f32),
      .out_f32_stride = gate.rows};
  // 32 outputs share a scale: two groups.
  RunProduct(kernels::Groups(gate.rows), 2, gate.group_stride_bytes, in,
             [&](int group_begin, int group_end, int tile_begin, int tile_end) {
               kernels::GatedMatmulParams piece = params;
               piece.group_begin = group_begin;
               piece.group_end = group_end;
               piece.tile_begin = tile_begin;
               piece.tile_end = tile_end;
               kernels_.gated_matmul(piece);
             });
  return absl::OkStatus();
}

Status CpuExecutable::Execute(const TakeRowsLaunch& launch, int rows) {
  const int64_t cols = Cols(launch.out);
  for (int i = 0; i < rows; ++i) {
    std::memcpy(F32(launch.out) + i * cols, F32(launch.in) + batch_->sampled_rows[i] * cols,
                cols * sizeof(float));
  }
  return absl::OkStatus();
}

Status CpuExecutable::Execute(const CommLaunch& launch, int rows) {
  const Op& op = parts_.program.ops[launch.op];
  if (const auto* gather = std::get_if<GatherOp>(&op)) return Gather(*gather, launch, rows);
  const absl::Span<float> value = Span(launch.value, rows);
  if (const auto* send = std::get_if<SendOp>(&op)) return parts_.group->Send(send->to_rank, value);
  if (const auto* recv = std::get_if<RecvOp>(&op)) {
    return parts_.group->Recv(recv->from_rank, value);
  }
  return parts_.group->AllReduceSum(value);
}

// A row at a time, each straight to its place: the first member needs no second buffer, and the
// others are done once their rows are on the way.
Status CpuExecutable::Gather(const GatherOp& op, const CommLaunch& launch, int rows) {
  const int64_t in_cols = launch.value == BufferId::kNone ? 0 : Cols(launch.value);
  if (launch.out == BufferId::kNone) {
    for (int row = 0; row < rows; ++row) {
      STAFFEL_RETURN_IF_ERROR(parts_.group->Send(
          op.ranks[0], absl::MakeConstSpan(F32(launch.value) + row * in_cols, in_cols)));
    }
    return absl::OkStatus();
  }
  const int64_t out_cols = Cols(launch.out);
  float* out = F32(launch.out);
  for (int row = 0; launch.value != BufferId::kNone && row < rows; ++row) {
    std::memcpy(out + row * out_cols, F32(launch.value) + row * in_cols, in_cols * sizeof(float));
  }
  for (size_t member = 1; member < op.ranks.size(); ++member) {
    out += op.cols[member - 1];
    for (int row = 0; row < rows; ++row) {
      STAFFEL_RETURN_IF_ERROR(parts_.group->Recv(
          op.ranks[member], absl::MakeSpan(out + row * out_cols, op.cols[member])));
    }
  }
  return absl::OkStatus();
}

}  // namespace staffel::cpu
