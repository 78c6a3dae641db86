#include "device/ref/ref_backend.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/strings.h"
#include "device/program_check.h"
#include "device/thread_pool.h"
#include "kernels/ref/dequant.h"
#include "kernels/ref/ops.h"

namespace staffel {
namespace {

// One layer's keys and values.
struct LayerKv {
  std::vector<float> keys, values;
};

class RefExecutable final : public Executable {
 public:
  RefExecutable(const Program& program, const BackendOptions& options, Communicator* group,
                int threads, RefKv kv_precision)
      : program_(program),
        options_(options),
        group_(group),
        pool_(threads),
        kv_precision_(kv_precision) {}

  Status Load(const std::vector<WeightSlice>& slices, const WeightSource& source);
  Status Run(const BatchTensors& batch) override;

  absl::Span<float> logits(int row) override {
    std::vector<float>& data = values_[static_cast<int>(program_.logits)];
    const size_t cols = program_.value(program_.logits).cols;
    return absl::MakeSpan(data).subspan(row * cols, cols);
  }
  absl::Span<const float> hidden(int row) override {
    const size_t cols = program_.value(program_.hidden).cols;
    return absl::MakeConstSpan(values_[static_cast<int>(program_.hidden)])
        .subspan(row * cols, cols);
  }
  int64_t weight_bytes() const override { return weight_bytes_; }

 private:
  float* Data(ValueId id) { return values_[static_cast<int>(id)].data(); }
  const float* Weight(WeightId id) const {
    return id == WeightId::kNone ? nullptr : weights_[static_cast<int>(id)].data();
  }
  int Cols(ValueId id) const { return program_.value(id).cols; }
  int Rows(ValueId id) const {
    return static_cast<int>(program_.value(id).rows == RowDim::kTokens
                                ? batch_->tokens.size()
                                : batch_->sampled_rows.size());
  }
  ref::KvView Kv(int layer) {
    return {kv_[layer].keys.data(), kv_[layer].values.data(), program_.kv.kv_heads,
            program_.kv.head_dim, options_.block_size};
  }
  // f(begin, end) over [0, count) in pieces of `piece`.
  template <class F>
  void Share(int count, int piece, F&& f) {
    pool_.Run((count + piece - 1) / piece,
              [&](int p, int) { f(p * piece, std::min(count, (p + 1) * piece)); });
  }
  // f(row, position, blocks) for every row of the batch, in order.
  template <class F>
  void ForRows(F&& f) {
    for (const BatchTensors::Sequence& sequence : batch_->sequences) {
      table_.assign(sequence.blocks.size(), 0);
      for (size_t i = 0; i < table_.size(); ++i) table_[i] = sequence.blocks[i].value;
      for (int i = 0; i < sequence.row_count; ++i) {
        f(sequence.row_begin + i, sequence.start + i, table_.data());
      }
    }
  }

  void CopyBlocks();
  void RoundKv(int layer, int32_t block, int slot);
  Status RunOp(const EmbedOp& op);
  Status RunOp(const AddRmsNormOp& op);
  Status RunOp(const LinearOp& op);
  Status RunOp(const GatedLinearOp& op);
  Status RunOp(const RopeAndStoreKvOp& op);
  Status RunOp(const PagedAttentionOp& op);
  Status RunOp(const AllReduceOp& op);
  Status RunOp(const GatherOp& op);
  Status RunOp(const SendOp& op);
  Status RunOp(const RecvOp& op);
  Status RunOp(const TakeRowsOp& op);
  void Trace(int index);

  const Program program_;
  const BackendOptions options_;
  Communicator* const group_;
  ThreadPool pool_;
  const RefKv kv_precision_;
  std::vector<std::vector<float>> weights_;  // by WeightId, dequantised
  std::vector<std::vector<float>> values_;   // by ValueId, [max rows, cols]
  std::vector<LayerKv> kv_;                  // by layer
  int64_t weight_bytes_ = 0;
  int vocab_ = 0;

  const BatchTensors* batch_ = nullptr;  // of the step that runs
  std::vector<int32_t> table_;           // blocks of one sequence
};

Status RefExecutable::Load(const std::vector<WeightSlice>& slices, const WeightSource& source) {
  weights_.resize(slices.size());
  for (size_t i = 0; i < slices.size(); ++i) {
    if (options_.cancelled && options_.cancelled()) {
      return absl::CancelledError("the loading of the weights was given up");
    }
    const WeightSlice& slice = slices[i];
    std::vector<float>& out = weights_[i];
    out.resize(slice.elements());
    Share(slice.rows.size(), 64, [&](int begin, int end) {
      for (int r = begin; r < end; ++r) {
        ref::Dequantize(slice.tensor->type, slice.RowBytes(r).data(), slice.cols.size(),
                        out.data() + int64_t{r} * slice.cols.size());
      }
    });
    weight_bytes_ += static_cast<int64_t>(out.size() * sizeof(float));
    source.Release(*slice.tensor);
    if (options_.progress) options_.progress(static_cast<double>(i + 1) / slices.size());
  }
  values_.resize(program_.values.size());
  for (size_t i = 0; i < values_.size(); ++i) {
    const Value& value = program_.values[i];
    const int rows = value.rows == RowDim::kTokens ? options_.max_rows : options_.max_sampled_rows;
    values_[i].resize(size_t(rows) * value.cols);
  }
  const KvShape& kv = program_.kv;
  kv_.resize(kv.layers);
  for (LayerKv& layer : kv_) {
    const size_t size =
        size_t(options_.block_count) * options_.block_size * kv.kv_heads * kv.head_dim;
    layer.keys.resize(size);
    layer.values.resize(size);
  }
  vocab_ = EmbeddingRows(program_);
  return absl::OkStatus();
}

Status RefExecutable::Run(const BatchTensors& batch) {
  STAFFEL_RETURN_IF_ERROR(CheckBatch(batch, options_, vocab_));
  batch_ = &batch;
  CopyBlocks();
  for (size_t i = 0; i < program_.ops.size(); ++i) {
    STAFFEL_RETURN_IF_ERROR(
        std::visit([this](const auto& op) { return RunOp(op); }, program_.ops[i]));
    if (options_.trace) Trace(static_cast<int>(i));
  }
  return absl::OkStatus();
}

void RefExecutable::CopyBlocks() {
  const int64_t size = int64_t{options_.block_size} * program_.kv.kv_heads * program_.kv.head_dim;
  for (const BlockCopy& copy : batch_->block_copies) {
    for (LayerKv& layer : kv_) {
      for (std::vector<float>* store : {&layer.keys, &layer.values}) {
        std::copy_n(store->data() + copy.source.value * size, size,
                    store->data() + copy.target.value * size);
      }
    }
  }
}

Status RefExecutable::RunOp(const EmbedOp& op) {
  ref::Embed(Weight(op.weight), Cols(op.out), batch_->tokens, op.scale, Data(op.out));
  return absl::OkStatus();
}

Status RefExecutable::RunOp(const AddRmsNormOp& op) {
  std::vector<float> scratch(Cols(op.residual));
  ref::AddRmsNorm({.residual = Data(op.residual),
                   .delta = op.delta == ValueId::kNone ? nullptr : Data(op.delta),
                   .post_norm = Weight(op.post_norm),
                   .weight = Weight(op.weight),
                   .eps = op.eps,
                   .out = Data(op.out),
                   .post_scratch = scratch.data()},
                  Rows(op.residual), Cols(op.residual));
  return absl::OkStatus();
}

Status RefExecutable::RunOp(const LinearOp& op) {
  float* out = Data(op.out);
  for (size_t i = 0; i < op.parts.size(); ++i) {
    const float* bias = op.biases.empty() ? nullptr : Weight(op.biases[i]);
    const int outputs = program_.weight(op.parts[i]).rows.size();
    Share(outputs, 16, [&](int begin, int end) {
      ref::Linear(Data(op.in), Weight(op.parts[i]), bias, Rows(op.in), Cols(op.in), {begin, end},
                  out, Cols(op.out));
    });
    out += outputs;
  }
  return absl::OkStatus();
}

Status RefExecutable::RunOp(const GatedLinearOp& op) {
  Share(Cols(op.out), 16, [&](int begin, int end) {
    ref::GatedLinear(Data(op.in), Weight(op.gate), Weight(op.up), op.activation, Rows(op.in),
                     Cols(op.in), {begin, end}, Data(op.out), Cols(op.out));
  });
  return absl::OkStatus();
}

Status RefExecutable::RunOp(const RopeAndStoreKvOp& op) {
  const ref::RopeAndStoreArgs args{.q_heads = op.heads.q_heads,
                                   .kv_heads = op.heads.kv_heads,
                                   .head_dim = op.head_dim,
                                   .rope = {.rope_dim = op.rope_dim,
                                            .style = op.style,
                                            .base = op.base,
                                            .position_scale = op.position_scale,
                                            .factors = Weight(op.frequency_factors)},
                                   .q_norm = Weight(op.q_norm),
                                   .k_norm = Weight(op.k_norm),
                                   .norm_eps = op.norm_eps};
  ForRows([&](int row, int position, const int32_t* blocks) {
    ref::RopeAndStoreKv(args, position, blocks, Data(op.qkv) + int64_t{row} * Cols(op.qkv),
                        Kv(op.layer));
    const int size = options_.block_size;
    if (kv_precision_ == RefKv::kBf16) RoundKv(op.layer, blocks[position / size], position % size);
  });
  return absl::OkStatus();
}

void RefExecutable::RoundKv(int layer, int32_t block, int slot) {
  const ref::KvView kv = Kv(layer);
  for (int head = 0; head < kv.kv_heads; ++head) {
    for (float* store : {kv.keys, kv.values}) {
      float* vector = store + kv.Offset(block, head, slot);
      for (int i = 0; i < kv.head_dim; ++i) {
        uint32_t bits = std::bit_cast<uint32_t>(vector[i]);
        bits += 0x7fff + (bits >> 16 & 1);
        vector[i] = std::bit_cast<float>(bits & 0xffff0000);
      }
    }
  }
}

Status RefExecutable::RunOp(const PagedAttentionOp& op) {
  for (const BatchTensors::Sequence& sequence : batch_->sequences) {
    table_.resize(sequence.blocks.size());
    for (size_t i = 0; i < table_.size(); ++i) table_[i] = sequence.blocks[i].value;
    Share(sequence.row_count, 1, [&](int i, int) {
      const int row = sequence.row_begin + i, position = sequence.start + i;
      std::vector<double> scores(position + 1 + op.head_dim);
      ref::PagedAttention(Data(op.qkv) + int64_t{row} * Cols(op.qkv), op.heads, op.scale, op.window,
                          position, table_.data(), Kv(op.layer), scores.data(),
                          Data(op.out) + int64_t{row} * Cols(op.out));
    });
  }
  return absl::OkStatus();
}

Status RefExecutable::RunOp(const AllReduceOp& op) {
  if (group_ == nullptr || group_->size() == 1) return absl::OkStatus();
  return group_->AllReduceSum(
      absl::MakeSpan(Data(op.value), size_t(Rows(op.value)) * Cols(op.value)));
}

Status RefExecutable::RunOp(const GatherOp& op) {
  const int rows = Rows(op.in), cols = Cols(op.in);
  const bool root = op.out != ValueId::kNone;
  float* out = root ? Data(op.out) : nullptr;
  for (int row = 0; row < rows; ++row) {
    const float* in = Data(op.in) + int64_t{row} * cols;
    if (!root) {
      STAFFEL_RETURN_IF_ERROR(group_->Send(op.ranks[0], absl::MakeConstSpan(in, cols)));
      continue;
    }
    out = std::copy_n(in, cols, out);
    for (size_t member = 1; member < op.ranks.size(); ++member) {
      const absl::Span<float> part = absl::MakeSpan(out, op.cols[member]);
      STAFFEL_RETURN_IF_ERROR(group_->Recv(op.ranks[member], part));
      out += part.size();
    }
  }
  return absl::OkStatus();
}

Status RefExecutable::RunOp(const SendOp& op) {
  return group_->Send(op.to_rank,
                      absl::MakeConstSpan(Data(op.value), size_t(Rows(op.value)) * Cols(op.value)));
}

Status RefExecutable::RunOp(const RecvOp& op) {
  return group_->Recv(op.from_rank,
                      absl::MakeSpan(Data(op.value), size_t(Rows(op.value)) * Cols(op.value)));
}

Status RefExecutable::RunOp(const TakeRowsOp& op) {
  ref::TakeRows(Data(op.in), Cols(op.in), batch_->sampled_rows, Data(op.out));
  return absl::OkStatus();
}

void RefExecutable::Trace(int index) {
  for (ValueId id : WrittenValues(program_.ops[index])) {
    options_.trace({.op = index,
                    .value = id,
                    .rows = Rows(id),
                    .cols = Cols(id),
                    .data = absl::MakeConstSpan(Data(id), size_t(Rows(id)) * Cols(id))});
  }
}

class RefBackend final : public Backend {
 public:
  RefBackend(int threads, RefKv kv) : threads_(threads), kv_(kv) {}

  std::string Describe() const override {
    return StrCat("ref: plain f32, ", threads_, threads_ == 1 ? " thread" : " threads");
  }
  int64_t kv_bytes_per_block(const Program& program, int block_size) const override {
    const KvShape& kv = program.kv;
    return int64_t{2} * sizeof(float) * kv.layers * kv.kv_heads * kv.head_dim * block_size;
  }
  Result<MemoryNeed> Measure(const Program& program, const WeightSource& weights, int group_size,
                             const BackendOptions& options) const override {
    STAFFEL_RETURN_IF_ERROR(CheckProgram(program, group_size));
    STAFFEL_ASSIGN_OR_RETURN(const std::vector<WeightSlice> slices, FindWeights(program, weights));
    MemoryNeed need;
    for (const WeightSlice& slice : slices) need.weights += slice.elements() * sizeof(float);
    for (const Value& value : program.values) {
      const int rows = value.rows == RowDim::kTokens ? options.max_rows : options.max_sampled_rows;
      need.work += int64_t{rows} * value.cols * sizeof(float);
    }
    return need;
  }

  Result<std::unique_ptr<Executable>> Prepare(const Program& program, const WeightSource& weights,
                                              Communicator* group,
                                              const BackendOptions& options) override {
    STAFFEL_RETURN_IF_ERROR(CheckPrepare(program, group, options));
    STAFFEL_ASSIGN_OR_RETURN(const std::vector<WeightSlice> slices, FindWeights(program, weights));
    auto executable = std::make_unique<RefExecutable>(program, options, group, threads_, kv_);
    STAFFEL_RETURN_IF_ERROR(executable->Load(slices, weights));
    return executable;
  }

 private:
  const int threads_;
  const RefKv kv_;
};

}  // namespace

std::unique_ptr<Backend> MakeRefBackend(int threads, RefKv kv) {
  return std::make_unique<RefBackend>(threads, kv);
}

}  // namespace staffel
