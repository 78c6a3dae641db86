#include "device/program_check.h"

#include <algorithm>
#include <numeric>

#include "base/strings.h"

namespace staffel {
namespace {

constexpr const char* kOpNames[] = {"Embed",          "AddRmsNorm",     "Linear",    "GatedLinear",
                                    "RopeAndStoreKv", "PagedAttention", "AllReduce", "Gather",
                                    "Send",           "Recv",           "TakeRows"};
static_assert(std::size(kOpNames) == std::variant_size_v<Op>);

// Checks one op at a time; the first fault ends it.
class ProgramChecker {
 public:
  ProgramChecker(const Program& program, int group_size)
      : program_(program), group_size_(group_size), written_(program.values.size()) {}

  Status Check() {
    for (const Value& value : program_.values) {
      Expect(value.cols > 0, StrCat("value ", value.name, " has no columns"));
    }
    for (const WeightSpec& spec : program_.weights) {
      Expect(spec.rows.begin >= 0 && spec.rows.size() > 0 && spec.cols.begin >= 0 &&
                 spec.cols.size() > 0,
             StrCat("weight ", spec.tensor, " has an empty range"));
    }
    if (!status_.ok()) return status_;
    for (op_ = 0; op_ < static_cast<int>(program_.ops.size()); ++op_) {
      const Op& op = program_.ops[op_];
      std::visit([this](const auto& o) { CheckOp(o); }, op);
      if (!status_.ok()) return status_;
      for (ValueId id : ReadValues(op)) {
        Expect(
            written_[static_cast<int>(id)],
            StrCat("it reads a value that no op before it wrote (", program_.value(id).name, ")"));
      }
      if (!status_.ok()) return status_;
      for (ValueId id : WrittenValues(op)) written_[static_cast<int>(id)] = true;
    }
    if (program_.logits != ValueId::kNone && IsValue(program_.logits, "logits")) {
      Expect(program_.value(program_.logits).rows == RowDim::kSampled,
             "the logits have a row per token, not per sampled row");
      Expect(written_[static_cast<int>(program_.logits)], "no op writes the logits");
    }
    if (program_.hidden != ValueId::kNone && IsValue(program_.hidden, "hidden")) {
      Expect(program_.value(program_.hidden).rows == RowDim::kTokens,
             "the hidden states have no row per token");
      Expect(written_[static_cast<int>(program_.hidden)], "no op writes the hidden states");
    }
    return status_;
  }

 private:
  void Fault(const std::string& what) {
    if (!status_.ok()) return;
    const int count = static_cast<int>(program_.ops.size());
    status_ = absl::InvalidArgumentError(
        op_ >= 0 && op_ < count ? StrCat("The program's op ", op_, " (", OpName(program_.ops[op_]),
                                         ") is malformed: ", what, ".")
                                : StrCat("The program is malformed: ", what, "."));
  }
  void Expect(bool good, const std::string& otherwise) {
    if (!good) Fault(otherwise);
  }
  bool IsValue(ValueId id, const char* role) {
    const int i = static_cast<int>(id);
    const bool good = i >= 0 && i < static_cast<int>(program_.values.size());
    Expect(good, StrCat(role, " is not a value"));
    return good;
  }
  bool IsWeight(WeightId id, const char* role) {
    const int i = static_cast<int>(id);
    const bool good = i >= 0 && i < static_cast<int>(program_.weights.size());
    Expect(good, StrCat(role, " is not a weight"));
    return good;
  }
  void ExpectCols(ValueId id, int64_t cols, const char* role) {
    if (!IsValue(id, role)) return;
    const int have = program_.value(id).cols;
    Expect(have == cols, StrCat(role, " has ", have, " columns and needs ", cols));
  }
  void ExpectSameRows(ValueId a, ValueId b) {
    if (!status_.ok()) return;
    Expect(program_.value(a).rows == program_.value(b).rows, "its values differ in their rows");
  }
  void ExpectTokenRows(ValueId a) {
    if (!status_.ok()) return;
    Expect(program_.value(a).rows == RowDim::kTokens, "it needs a value with a row per token");
  }
  void ExpectVector(WeightId id, int elements, const char* role, bool optional = true) {
    if (optional && id == WeightId::kNone) return;
    if (!IsWeight(id, role)) return;
    const WeightSpec& spec = program_.weight(id);
    Expect(spec.vector && spec.rows.size() == elements,
           StrCat(role, " (", spec.tensor, ") is not a vector of ", elements));
  }
  void ExpectMatrix(WeightId id, int inputs, const char* role) {
    if (!IsWeight(id, role)) return;
    const WeightSpec& spec = program_.weight(id);
    Expect(!spec.vector && spec.cols.size() == inputs,
           StrCat(role, " (", spec.tensor, ") is not a matrix with ", inputs, " inputs"));
  }
  int Cols(ValueId id) const { return status_.ok() ? program_.value(id).cols : 0; }
  int Outputs(WeightId id) const { return status_.ok() ? program_.weight(id).rows.size() : 0; }

  void CheckOp(const EmbedOp& op) {
    if (!IsValue(op.out, "out")) return;
    ExpectMatrix(op.weight, Cols(op.out), "weight");
    ExpectTokenRows(op.out);
  }
  void CheckOp(const AddRmsNormOp& op) {
    if (!IsValue(op.residual, "residual")) return;
    const int cols = Cols(op.residual);
    ExpectCols(op.out, cols, "out");
    ExpectSameRows(op.residual, op.out);
    ExpectVector(op.weight, cols, "weight", false);
    ExpectVector(op.post_norm, cols, "post_norm");
    if (op.delta == ValueId::kNone) {
      Expect(op.post_norm == WeightId::kNone, "post_norm without a delta");
      return;
    }
    ExpectCols(op.delta, cols, "delta");
    ExpectSameRows(op.residual, op.delta);
    Expect(op.out != op.residual && op.out != op.delta && op.delta != op.residual,
           "residual, delta and out are not three values");
  }
  void CheckOp(const LinearOp& op) {
    if (!IsValue(op.in, "in") || !IsValue(op.out, "out")) return;
    ExpectSameRows(op.in, op.out);
    Expect(op.in != op.out, "in and out are one value");
    Expect(op.biases.empty() || op.biases.size() == op.parts.size(),
           "biases and parts differ in number");
    int64_t outputs = 0;
    for (size_t i = 0; i < op.parts.size() && status_.ok(); ++i) {
      ExpectMatrix(op.parts[i], Cols(op.in), "a part");
      const int part = Outputs(op.parts[i]);
      if (!op.biases.empty()) ExpectVector(op.biases[i], part, "a bias");
      outputs += part;
    }
    ExpectCols(op.out, outputs, "out");
  }
  void CheckOp(const GatedLinearOp& op) {
    if (!IsValue(op.in, "in") || !IsValue(op.out, "out")) return;
    ExpectSameRows(op.in, op.out);
    Expect(op.in != op.out, "in and out are one value");
    ExpectMatrix(op.gate, Cols(op.in), "gate");
    ExpectMatrix(op.up, Cols(op.in), "up");
    ExpectCols(op.out, Outputs(op.gate), "out");
    ExpectCols(op.out, Outputs(op.up), "out");
  }
  void CheckHeads(int layer, const HeadGroups& heads, int head_dim) {
    const auto [q_heads, kv_heads, group_size, first] = heads;
    Expect(q_heads > 0 && kv_heads > 0 && head_dim > 0, "a head count is not positive");
    Expect(group_size > 0 && first >= 0 && first < group_size && status_.ok() &&
               heads.KvHeadOf(q_heads - 1) == kv_heads - 1,
           StrCat(q_heads, " query heads from place ", first, " of a group of ", group_size,
                  " do not read ", kv_heads, " KV heads"));
    Expect(layer >= 0 && layer < program_.kv.layers, StrCat("KV layer ", layer, " does not exist"));
    Expect(kv_heads == program_.kv.kv_heads && head_dim == program_.kv.head_dim,
           "its heads differ from the KV store's");
  }
  void CheckOp(const RopeAndStoreKvOp& op) {
    CheckHeads(op.layer, op.heads, op.head_dim);
    ExpectCols(op.qkv, int64_t{op.heads.q_heads + 2 * op.heads.kv_heads} * op.head_dim, "qkv");
    ExpectTokenRows(op.qkv);
    Expect(op.rope_dim >= 0 && op.rope_dim % 2 == 0 && op.rope_dim <= op.head_dim,
           StrCat("rope_dim ", op.rope_dim, " is not an even number up to head_dim"));
    Expect(op.base > 0, "the rotation base is not positive");
    ExpectVector(op.frequency_factors, op.rope_dim / 2, "frequency_factors");
    ExpectVector(op.q_norm, op.head_dim, "q_norm");
    ExpectVector(op.k_norm, op.head_dim, "k_norm");
  }
  void CheckOp(const PagedAttentionOp& op) {
    CheckHeads(op.layer, op.heads, op.head_dim);
    ExpectCols(op.qkv, int64_t{op.heads.q_heads + 2 * op.heads.kv_heads} * op.head_dim, "qkv");
    ExpectCols(op.out, int64_t{op.heads.q_heads} * op.head_dim, "out");
    ExpectTokenRows(op.qkv);
    ExpectTokenRows(op.out);
    Expect(op.window >= 0, "the window is negative");
  }
  void CheckOp(const AllReduceOp& op) { IsValue(op.value, "value"); }
  void CheckOp(const GatherOp& op) {
    if (!IsValue(op.in, "in")) return;
    Expect(static_cast<int>(op.cols.size()) == group_size_ && op.ranks.size() == op.cols.size(),
           StrCat("it gathers from ", op.cols.size(), " members of a group of ", group_size_));
    if (op.out == ValueId::kNone || !status_.ok() || !IsValue(op.out, "out")) return;
    ExpectCols(op.in, op.cols[0], "in");
    ExpectCols(op.out, std::accumulate(op.cols.begin(), op.cols.end(), int64_t{0}), "out");
    ExpectSameRows(op.in, op.out);
    Expect(op.in != op.out, "in and out are one value");
  }
  void CheckOp(const SendOp& op) { IsValue(op.value, "value"); }
  void CheckOp(const RecvOp& op) { IsValue(op.value, "value"); }
  void CheckOp(const TakeRowsOp& op) {
    if (!IsValue(op.in, "in") || !IsValue(op.out, "out")) return;
    ExpectCols(op.out, Cols(op.in), "out");
    ExpectTokenRows(op.in);
    Expect(program_.value(op.out).rows == RowDim::kSampled, "out has a row per token");
  }

  const Program& program_;
  const int group_size_;
  std::vector<bool> written_;  // by ValueId, so far
  int op_ = -1;
  Status status_;
};

Status BatchFault(std::string_view what) {
  return absl::InvalidArgumentError(StrCat("The step's batch is malformed: ", what, "."));
}

}  // namespace

const char* OpName(const Op& op) { return kOpNames[op.index()]; }

std::vector<ValueId> ReadValues(const Op& op) {
  struct Visitor {
    std::vector<ValueId> operator()(const EmbedOp&) { return {}; }
    std::vector<ValueId> operator()(const AddRmsNormOp& op) {
      if (op.delta == ValueId::kNone) return {op.residual};
      return {op.residual, op.delta};
    }
    std::vector<ValueId> operator()(const LinearOp& op) { return {op.in}; }
    std::vector<ValueId> operator()(const GatedLinearOp& op) { return {op.in}; }
    std::vector<ValueId> operator()(const RopeAndStoreKvOp& op) { return {op.qkv}; }
    std::vector<ValueId> operator()(const PagedAttentionOp& op) { return {op.qkv}; }
    std::vector<ValueId> operator()(const AllReduceOp& op) { return {op.value}; }
    std::vector<ValueId> operator()(const GatherOp& op) { return {op.in}; }
    std::vector<ValueId> operator()(const SendOp& op) { return {op.value}; }
    std::vector<ValueId> operator()(const RecvOp&) { return {}; }
    std::vector<ValueId> operator()(const TakeRowsOp& op) { return {op.in}; }
  };
  return std::visit(Visitor{}, op);
}

std::vector<ValueId> WrittenValues(const Op& op) {
  struct Visitor {
    std::vector<ValueId> operator()(const AddRmsNormOp& op) {
      if (op.delta == ValueId::kNone) return {op.out};
      return {op.residual, op.out};
    }
    std::vector<ValueId> operator()(const RopeAndStoreKvOp& op) { return {op.qkv}; }
    std::vector<ValueId> operator()(const AllReduceOp& op) { return {op.value}; }
    std::vector<ValueId> operator()(const SendOp&) { return {}; }
    std::vector<ValueId> operator()(const RecvOp& op) { return {op.value}; }
    std::vector<ValueId> operator()(const EmbedOp& op) { return {op.out}; }
    std::vector<ValueId> operator()(const LinearOp& op) { return {op.out}; }
    std::vector<ValueId> operator()(const GatedLinearOp& op) { return {op.out}; }
    std::vector<ValueId> operator()(const PagedAttentionOp& op) { return {op.out}; }
    std::vector<ValueId> operator()(const GatherOp& op) {
      if (op.out == ValueId::kNone) return {};
      return {op.out};
    }
    std::vector<ValueId> operator()(const TakeRowsOp& op) { return {op.out}; }
  };
  return std::visit(Visitor{}, op);
}

Status CheckPrepare(const Program& program, const Communicator* group,
                    const BackendOptions& options) {
  STAFFEL_RETURN_IF_ERROR(CheckProgram(program, group == nullptr ? 1 : group->size()));
  if (options.block_size <= 0 || options.block_count < 0 || options.max_rows <= 0 ||
      options.max_sampled_rows <= 0 || options.max_positions <= 0) {
    return absl::InvalidArgumentError(StrCat(
        "A backend needs positive sizes, but got block_size ", options.block_size, ", block_count ",
        options.block_count, ", max_rows ", options.max_rows, ", max_sampled_rows ",
        options.max_sampled_rows, ", max_positions ", options.max_positions, "."));
  }
  for (const Op& op : program.ops) {
    const bool needs_group =
        std::holds_alternative<SendOp>(op) || std::holds_alternative<RecvOp>(op);
    if (needs_group && group == nullptr) {
      return absl::FailedPreconditionError(
          StrCat("The program has a ", OpName(op), " op but no group to talk to."));
    }
  }
  return absl::OkStatus();
}

Status CheckProgram(const Program& program, int group_size) {
  return ProgramChecker(program, group_size).Check();
}

absl::Span<const uint8_t> WeightSlice::RowBytes(int r) const {
  const DTypeInfo& info = InfoOf(tensor->type);
  const int64_t begin = cols.begin / info.block_elements * info.block_bytes;
  const int64_t size = cols.size() / info.block_elements * info.block_bytes;
  return tensor->bytes.subspan((rows.begin + r) * tensor->row_bytes() + begin, size);
}

Result<std::vector<WeightSlice>> FindWeights(const Program& program, const WeightSource& weights) {
  std::vector<WeightSlice> slices;
  slices.reserve(program.weights.size());
  for (const WeightSpec& spec : program.weights) {
    const TensorView* tensor = weights.Find(spec.tensor);
    if (tensor == nullptr) {
      return absl::NotFoundError(
          StrCat("The model has no tensor ", spec.tensor, ", which its architecture needs."));
    }
    auto mismatch = [&](std::string_view what) {
      return absl::InvalidArgumentError(StrCat("Tensor ", spec.tensor, " (",
                                               InfoOf(tensor->type).name, ", ", tensor->rows, " x ",
                                               tensor->cols, ") ", what));
    };
    const DTypeInfo& info = InfoOf(tensor->type);
    WeightSlice slice{tensor, spec.rows, spec.cols};
    if (spec.vector) {
      if (tensor->rows != 1 || spec.rows.end > tensor->cols) {
        return mismatch(StrCat("is not a vector of ", spec.rows.end, " elements."));
      }
      slice.rows = {0, 1};
      slice.cols = spec.rows;
    } else if (spec.rows.end > tensor->rows || spec.cols.end > tensor->cols) {
      return mismatch(StrCat("is smaller than the ", spec.rows.end, " x ", spec.cols.end,
                             " that its architecture needs."));
    }
    if (slice.cols.begin % info.block_elements != 0 ||
        slice.cols.size() % info.block_elements != 0) {
      return mismatch(StrCat("cannot be cut at columns ", slice.cols.begin, " and ", slice.cols.end,
                             ": its blocks have ", info.block_elements, " elements."));
    }
    if (static_cast<int64_t>(tensor->bytes.size()) < tensor->rows * tensor->row_bytes()) {
      return mismatch("has fewer bytes than its shape needs.");
    }
    slices.push_back(slice);
  }
  return slices;
}

Status CheckBatch(const BatchTensors& batch, const BackendOptions& options, int vocab) {
  const int rows = static_cast<int>(batch.tokens.size());
  if (rows > options.max_rows) {
    return BatchFault(StrCat(rows, " rows exceed the ", options.max_rows, " prepared for"));
  }
  if (static_cast<int>(batch.positions.size()) != rows) {
    return BatchFault("tokens and positions differ in number");
  }
  if (static_cast<int>(batch.sampled_rows.size()) > options.max_sampled_rows) {
    return BatchFault(StrCat(batch.sampled_rows.size(), " sampled rows exceed the ",
                             options.max_sampled_rows, " prepared for"));
  }
  if (vocab > 0) {
    for (TokenId token : batch.tokens) {
      if (token < 0 || token >= vocab) {
        return BatchFault(StrCat("token ", token, " is outside the vocabulary of ", vocab));
      }
    }
  }
  int next = 0;
  for (const BatchTensors::Sequence& sequence : batch.sequences) {
    if (sequence.row_begin != next || sequence.row_count <= 0 || sequence.start < 0) {
      return BatchFault("its sequences do not cover the rows in order");
    }
    next += sequence.row_count;
    const int64_t end = int64_t{sequence.start} + sequence.row_count;
    if (next > rows || end > options.max_positions) {
      return BatchFault(StrCat("a sequence ends at position ", end, " and row ", next));
    }
    if (static_cast<int64_t>(sequence.blocks.size()) * options.block_size < end) {
      return BatchFault("a block table is too short");
    }
    for (int i = 0; i < sequence.row_count; ++i) {
      if (batch.positions[sequence.row_begin + i] != sequence.start + i) {
        return BatchFault("a position differs from its sequence's");
      }
    }
    for (BlockId block : sequence.blocks) {
      if (block.value < 0 || block.value >= options.block_count) {
        return BatchFault(StrCat("block ", block.value, " does not exist"));
      }
    }
  }
  if (next != rows) return BatchFault("its sequences do not cover the rows");
  int32_t last = -1;
  for (int32_t row : batch.sampled_rows) {
    if (row <= last || row >= rows) return BatchFault("the sampled rows are not ascending rows");
    last = row;
  }
  for (const BlockCopy& copy : batch.block_copies) {
    for (BlockId block : {copy.source, copy.target}) {
      if (block.value < 0 || block.value >= options.block_count) {
        return BatchFault(StrCat("block ", block.value, " does not exist"));
      }
    }
  }
  return absl::OkStatus();
}

int EmbeddingRows(const Program& program) {
  for (const Op& op : program.ops) {
    if (const auto* embed = std::get_if<EmbedOp>(&op))
      return program.weight(embed->weight).rows.size();
  }
  return 0;
}

}  // namespace staffel
