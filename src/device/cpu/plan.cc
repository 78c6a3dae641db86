#include "device/cpu/plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "device/cpu/memory.h"

namespace staffel::cpu {
namespace {

using kernels::ActivationForm;

constexpr int kForms = 4;
// Between buffers: no two share a cache line, and a vector load past the end of one stays inside.
constexpr int64_t kBufferAlignment = 256;

int64_t AlignUp(int64_t n, int64_t alignment) {
  return (n + alignment - 1) / alignment * alignment;
}

// What a value is needed as, by all consumers together.
struct Needs {
  bool f32 = false;
  std::array<bool, kForms> form = {};
  int forms() const { return static_cast<int>(std::count(form.begin(), form.end(), true)); }
};

// Where a value is while the ops are walked.
struct Place {
  BufferId f32 = BufferId::kNone;
  std::array<BufferId, kForms> form = {BufferId::kNone, BufferId::kNone, BufferId::kNone,
                                       BufferId::kNone};
  std::array<bool, kForms> form_is_current = {};
};

class Planner {
 public:
  Planner(const Program& program, const std::vector<WeightSlice>& slices, int group_size,
          const BackendOptions& options)
      : program_(program),
        slices_(slices),
        group_size_(group_size),
        options_(options),
        needs_(program.values.size()),
        places_(program.values.size()) {}

  Result<Plan> Make() {
    STAFFEL_RETURN_IF_ERROR(CheckSupport());
    for (const Op& op : program_.ops) {
      std::visit([this](const auto& o) { CountNeeds(o); }, op);
    }
    for (ValueId kept : {program_.logits, program_.hidden}) {
      if (kept != ValueId::kNone) Need(kept).f32 = true;
    }
    if (options_.trace) {
      for (Needs& needs : needs_) needs.f32 = true;
    }
    for (op_ = 0; op_ < static_cast<int>(program_.ops.size()); ++op_) {
      std::visit([this](const auto& o) { Lower(o); }, program_.ops[op_]);
    }
    if (program_.logits != ValueId::kNone) plan_.logits = KeepLogits();
    if (program_.hidden != ValueId::kNone) plan_.hidden = KeepHidden();
    PlaceEmbeddings();
    PlaceBuffers();
    for (const RopeTable& table : plan_.rope_tables) {
      plan_.rope_bytes += int64_t{options_.max_positions} * table.rope_dim * sizeof(float);
    }
    return std::move(plan_);
  }

 private:
  // ---- Support --------------------------------------------------------------------------------

  Status CheckSupport() const {
    if (options_.block_size % kernels::kKvTokens != 0) {
      return absl::InvalidArgumentError(StrCat("The CPU backend needs a block size that is a ",
                                               "multiple of ", kernels::kKvTokens, ", not ",
                                               options_.block_size, "."));
    }
    if (program_.kv.layers > 0 && program_.kv.head_dim > kernels::kMaxHeadDim) {
      return absl::UnimplementedError(StrCat("The CPU backend has no attention for a head size of ",
                                             program_.kv.head_dim, "; ", kernels::kMaxHeadDim,
                                             " is its limit."));
    }
    STAFFEL_RETURN_IF_ERROR(CheckHeads());
    for (size_t i = 0; i < slices_.size(); ++i) {
      const WeightSlice& slice = slices_[i];
      if (program_.weights[i].vector) continue;
      const char* error = kernels::PackError(slice.tensor->type, slice.tensor->cols,
                                             slice.cols.begin, slice.cols.end);
      if (error != nullptr) {
        return absl::InvalidArgumentError(StrCat(
            "Tensor ", slice.tensor->name, " (", InfoOf(slice.tensor->type).name, ", columns ",
            slice.cols.begin, " to ", slice.cols.end, ") cannot be packed: ", error, "."));
      }
    }
    return absl::OkStatus();
  }

  // The rows of a step are cut into pieces once for all layers.
  Status CheckHeads() const {
    const HeadGroups* heads = nullptr;
    for (const Op& op : program_.ops) {
      const auto* attend = std::get_if<PagedAttentionOp>(&op);
      if (attend == nullptr) continue;
      if (heads != nullptr && attend->heads != *heads) {
        return absl::UnimplementedError(
            StrCat("The CPU backend needs the same query heads in all layers, not ", heads->q_heads,
                   " and ", attend->heads.q_heads, "."));
      }
      heads = &attend->heads;
    }
    return absl::OkStatus();
  }

  // ---- Needs ----------------------------------------------------------------------------------

  Needs& Need(ValueId id) { return needs_[static_cast<int>(id)]; }
  Place& PlaceOf(ValueId id) { return places_[static_cast<int>(id)]; }
  DType TypeOf(WeightId id) const { return slices_[static_cast<int>(id)].tensor->type; }
  ActivationForm FormOf(WeightId id) const {
    return kernels::FormFor(TypeOf(id), options_.activations);
  }
  ActivationForm FormOf(const GatedLinearOp& op) const {
    const ActivationForm gate = FormOf(op.gate);
    return gate == FormOf(op.up) ? gate : ActivationForm::kF32;
  }

  void CountNeeds(const EmbedOp&) {}
  void CountNeeds(const AddRmsNormOp& op) {
    Need(op.residual).f32 = true;
    if (op.delta != ValueId::kNone) Need(op.delta).f32 = true;
  }
  void CountNeeds(const LinearOp& op) {
    for (WeightId part : op.parts) Need(op.in).form[static_cast<int>(FormOf(part))] = true;
  }
  void CountNeeds(const GatedLinearOp& op) {
    Need(op.in).form[static_cast<int>(FormOf(op))] = true;
  }
  void CountNeeds(const RopeAndStoreKvOp& op) { Need(op.qkv).f32 = true; }
  void CountNeeds(const PagedAttentionOp& op) { Need(op.qkv).f32 = true; }
  void CountNeeds(const AllReduceOp& op) {
    if (group_size_ > 1) Need(op.value).f32 = true;
  }
  void CountNeeds(const GatherOp& op) { Need(op.in).f32 = true; }
  void CountNeeds(const SendOp& op) { Need(op.value).f32 = true; }
  void CountNeeds(const RecvOp&) {}
  void CountNeeds(const TakeRowsOp& op) { Need(op.in).f32 = true; }

  // ---- Buffers --------------------------------------------------------------------------------

  int next_launch() const { return static_cast<int>(plan_.launches.size()); }

  int MaxRows(RowDim rows) const {
    return rows == RowDim::kTokens ? options_.max_rows : options_.max_sampled_rows;
  }
  BufferId NewBuffer(Buffer buffer) {
    buffer.first = buffer.last = next_launch();
    buffer.bytes = buffer.is_f32_rows
                       ? int64_t{MaxRows(buffer.rows)} * buffer.cols * sizeof(float)
                       : kernels::ActivationBytes(buffer.form, MaxRows(buffer.rows), buffer.cols);
    plan_.buffers.push_back(buffer);
    return static_cast<BufferId>(plan_.buffers.size() - 1);
  }
  BufferId Touch(BufferId id) {
    if (id != BufferId::kNone) plan_.buffers[static_cast<int>(id)].last = next_launch();
    return id;
  }
  // The value's f32 rows, to be read by the next launch.
  BufferId Read(ValueId id) {
    STAFFEL_CHECK(PlaceOf(id).f32 != BufferId::kNone)
        << "op " << op_ << " reads a value before it is written";
    return Touch(PlaceOf(id).f32);
  }
  // The value's f32 rows, to be written by the next launch.
  BufferId Write(ValueId id) {
    Place& place = PlaceOf(id);
    if (place.f32 == BufferId::kNone) {
      const Value& value = program_.value(id);
      place.f32 = NewBuffer({.value = id, .rows = value.rows, .cols = value.cols});
    }
    Forget(id);
    return Touch(place.f32);
  }
  // The value is about to be written anew: none of its forms is current.
  void Forget(ValueId id) { PlaceOf(id).form_is_current = {}; }
  BufferId WriteForm(ValueId id, ActivationForm form) {
    Place& place = PlaceOf(id);
    const int f = static_cast<int>(form);
    if (place.form[f] == BufferId::kNone) {
      const Value& value = program_.value(id);
      place.form[f] = NewBuffer({.value = id,
                                 .is_f32_rows = false,
                                 .form = form,
                                 .rows = value.rows,
                                 .cols = value.cols});
    }
    place.form_is_current[f] = true;
    return Touch(place.form[f]);
  }
  // The value in `form`, for the next launch; converts it first where it is not there.
  BufferId ReadForm(ValueId id, ActivationForm form) {
    const int f = static_cast<int>(form);
    if (!PlaceOf(id).form_is_current[f]) {
      PrepareLaunch launch{.residual = Read(id)};
      launch.out = WriteForm(id, form);
      Add(launch, program_.value(id).rows);
    }
    return Touch(PlaceOf(id).form[f]);
  }
  // The single form in which the value is needed, and in no other way; else nothing.
  std::optional<ActivationForm> OnlyForm(ValueId id) {
    const Needs& needs = Need(id);
    if (needs.f32 || needs.forms() != 1) return std::nullopt;
    return static_cast<ActivationForm>(std::find(needs.form.begin(), needs.form.end(), true) -
                                       needs.form.begin());
  }

  void Add(LaunchKind kind, RowDim rows) {
    plan_.launches.push_back({.kind = std::move(kind), .rows = rows, .op = op_});
  }
  void AddLast(LaunchKind kind, RowDim rows) {
    Add(std::move(kind), rows);
    plan_.launches.back().completed_ops.push_back(op_);
  }

  // ---- Weights --------------------------------------------------------------------------------

  int64_t TakeWeightBytes(int64_t bytes) {
    const int64_t offset = plan_.weight_bytes;
    plan_.weight_bytes = AlignUp(offset + bytes, kernels::kAlignment);
    return offset;
  }
  Matrix MatrixOf(WeightId id) const {
    const WeightSlice& slice = slices_[static_cast<int>(id)];
    return {.parts = {id},
            .type = slice.tensor->type,
            .rows = slice.rows.size(),
            .cols = slice.cols.size(),
            .group_stride_bytes = kernels::GroupBytes(slice.tensor->type, slice.cols.size())};
  }
  MatrixId AddMatrix(Matrix matrix) {
    matrix.offset = TakeWeightBytes(kernels::Groups(matrix.rows) * matrix.group_stride_bytes);
    plan_.matrices.push_back(std::move(matrix));
    return static_cast<MatrixId>(plan_.matrices.size() - 1);
  }

  // ---- Lowering -------------------------------------------------------------------------------

  void Lower(const EmbedOp& op) {
    EmbedLaunch launch{.stored = op.weight, .scale = op.scale, .out = Write(op.out)};
    AddLast(launch, RowDim::kTokens);  // its matrix is found once all are known
  }

  void Lower(const AddRmsNormOp& op) {
    const RowDim rows = program_.value(op.out).rows;
    PrepareLaunch launch{.residual = Read(op.residual),
                         .delta = op.delta == ValueId::kNone ? BufferId::kNone : Read(op.delta),
                         .post_norm = op.post_norm,
                         .norm = op.weight,
                         .eps = op.eps};
    if (op.delta != ValueId::kNone) Write(op.residual);
    const Needs& needs = Need(op.out);
    Forget(op.out);
    if (needs.f32 || needs.forms() != 1) launch.out_f32 = Write(op.out);
    for (int f = 0; f < kForms; ++f) {
      if (!needs.form[f]) continue;
      launch.out = WriteForm(op.out, static_cast<ActivationForm>(f));
      break;
    }
    AddLast(launch, rows);
  }

  void Lower(const LinearOp& op) {
    MatmulLaunch launch;
    int column = 0;
    for (size_t i = 0; i < op.parts.size();) {
      Matrix matrix = MatrixOf(op.parts[i]);
      if (!op.biases.empty()) matrix.biases.push_back(op.biases[i]);
      for (++i; i < op.parts.size(); ++i) {
        const Matrix next = MatrixOf(op.parts[i]);
        if (next.type != matrix.type || matrix.rows % kernels::kGroup != 0) break;
        matrix.parts.push_back(op.parts[i]);
        matrix.rows += next.rows;
        if (!op.biases.empty()) matrix.biases.push_back(op.biases[i]);
      }
      const ActivationForm form = kernels::FormFor(matrix.type, options_.activations);
      const int rows = matrix.rows;
      launch.segments.push_back({.matrix = AddMatrix(std::move(matrix)),
                                 .in = ReadForm(op.in, form),
                                 .column = column,
                                 .group_begin = launch.groups});
      column += rows;
      launch.groups += kernels::Groups(rows);
    }
    // A conversion for a later segment came after the earlier segments' inputs were touched.
    for (const MatmulLaunch::Segment& segment : launch.segments) Touch(segment.in);
    const GatherOp* gather = GatherInPlace(op);
    launch.out = Write(gather != nullptr ? gather->out : op.out);
    AddLast(std::move(launch), program_.value(op.out).rows);
  }

  // The gather that comes next and is alone in reading the product, on the first member: its own
  // columns are the first, and are written where they belong at once.
  const GatherOp* GatherInPlace(const LinearOp& op) const {
    if (options_.trace || op_ + 1 == static_cast<int>(program_.ops.size())) return nullptr;
    const auto* gather = std::get_if<GatherOp>(&program_.ops[op_ + 1]);
    if (gather == nullptr || gather->in != op.out || gather->out == ValueId::kNone) return nullptr;
    for (size_t i = op_ + 2; i < program_.ops.size(); ++i) {
      const std::vector<ValueId> reads = ReadValues(program_.ops[i]);
      if (std::count(reads.begin(), reads.end(), op.out) > 0) return nullptr;
    }
    return op.out == program_.logits ? nullptr : gather;
  }

  void Lower(const GatedLinearOp& op) {
    GatedLaunch launch;
    launch.function = op.activation == Activation::kSilu ? kernels::GateFunction::kSilu
                                                         : kernels::GateFunction::kGeluTanh;
    launch.in = ReadForm(op.in, FormOf(op));
    // Gate and up interleaved: 16 gate outputs, then their 16 up outputs.
    Matrix gate = MatrixOf(op.gate), up = MatrixOf(op.up);
    const int64_t gate_group = gate.group_stride_bytes;
    gate.group_stride_bytes = up.group_stride_bytes = gate_group + up.group_stride_bytes;
    launch.gate = AddMatrix(std::move(gate));
    up.offset = plan_.matrix(launch.gate).offset + gate_group;
    plan_.matrices.push_back(std::move(up));
    launch.up = static_cast<MatrixId>(plan_.matrices.size() - 1);
    Forget(op.out);
    if (const auto form = OnlyForm(op.out)) {
      launch.out = WriteForm(op.out, *form);
    } else {
      launch.out_f32 = Write(op.out);
    }
    AddLast(launch, program_.value(op.out).rows);
  }

  void Lower(const RopeAndStoreKvOp& op) {
    const RopeTable table{op.rope_dim, op.base, op.position_scale, op.frequency_factors};
    auto found = std::find(plan_.rope_tables.begin(), plan_.rope_tables.end(), table);
    const int index = static_cast<int>(found - plan_.rope_tables.begin());
    if (found == plan_.rope_tables.end()) plan_.rope_tables.push_back(table);
    Read(op.qkv);
    AddLast(AttentionLaunch{.rope = op_, .table = index, .qkv = Write(op.qkv)}, RowDim::kTokens);
  }

  void Lower(const PagedAttentionOp& op) {
    // Attention right after its own rotation runs in the same launch.
    if (!plan_.launches.empty()) {
      Launch& last = plan_.launches.back();
      auto* rope = std::get_if<AttentionLaunch>(&last.kind);
      if (rope != nullptr && rope->attend < 0 && rope->qkv == PlaceOf(op.qkv).f32 &&
          std::get<RopeAndStoreKvOp>(program_.ops[rope->rope]).layer == op.layer &&
          std::get<RopeAndStoreKvOp>(program_.ops[rope->rope]).heads == op.heads) {
        AttentionLaunch both = *rope;
        const int rope_op = both.rope;
        plan_.launches.pop_back();
        both.attend = op_;
        Read(op.qkv);
        both.out = Write(op.out);
        AddLast(both, RowDim::kTokens);
        plan_.launches.back().completed_ops = {rope_op, op_};
        return;
      }
    }
    const BufferId qkv = Read(op.qkv);
    AddLast(AttentionLaunch{.attend = op_, .qkv = qkv, .out = Write(op.out)}, RowDim::kTokens);
  }

  void Lower(const AllReduceOp& op) {
    if (group_size_ == 1) return CompleteWithLast();
    Read(op.value);
    AddLast(CommLaunch{.op = op_, .value = Write(op.value)}, program_.value(op.value).rows);
  }

  void Lower(const GatherOp& op) {
    CommLaunch launch{.op = op_};
    if (PlaceOf(op.in).f32 != BufferId::kNone) launch.value = Read(op.in);
    if (op.out != ValueId::kNone) launch.out = Write(op.out);
    AddLast(launch, program_.value(op.in).rows);
  }

  void Lower(const SendOp& op) {
    AddLast(CommLaunch{.op = op_, .value = Read(op.value)}, program_.value(op.value).rows);
  }
  void Lower(const RecvOp& op) {
    AddLast(CommLaunch{.op = op_, .value = Write(op.value)}, program_.value(op.value).rows);
  }
  void Lower(const TakeRowsOp& op) {
    const BufferId in = Read(op.in);
    AddLast(TakeRowsLaunch{.in = in, .out = Write(op.out)}, RowDim::kSampled);
  }

  // An op that costs nothing is complete when the launch before it is.
  void CompleteWithLast() {
    if (!plan_.launches.empty()) plan_.launches.back().completed_ops.push_back(op_);
  }

  // ---- Memory ---------------------------------------------------------------------------------

  // Readable and writable between steps: nothing else may lie there.
  BufferId KeepLogits() {
    const BufferId id = PlaceOf(program_.logits).f32;
    Buffer& buffer = plan_.buffers[static_cast<int>(id)];
    buffer.first = 0;
    buffer.last = next_launch();
    return id;
  }

  // Readable when the step is done.
  BufferId KeepHidden() {
    const BufferId id = PlaceOf(program_.hidden).f32;
    plan_.buffers[static_cast<int>(id)].last = next_launch();
    return id;
  }

  // An embedding whose slice is also multiplied with (tied to the vocabulary projection) is read
  // from the packed matrix; any other is kept as it is stored.
  void PlaceEmbeddings() {
    for (Launch& launch : plan_.launches) {
      auto* embed = std::get_if<EmbedLaunch>(&launch.kind);
      if (embed == nullptr) continue;
      const WeightSlice& slice = slices_[static_cast<int>(embed->stored)];
      auto same = [&](const Matrix& matrix) {
        const WeightSlice& other = slices_[static_cast<int>(matrix.parts[0])];
        return matrix.parts.size() == 1 && other.tensor == slice.tensor &&
               other.rows == slice.rows && other.cols == slice.cols;
      };
      const auto found = std::find_if(plan_.matrices.begin(), plan_.matrices.end(), same);
      if (found != plan_.matrices.end()) {
        embed->matrix = static_cast<MatrixId>(found - plan_.matrices.begin());
      } else {
        embed->stored_offset = TakeWeightBytes(slice.rows.size() * slice.RowBytes(0).size());
      }
    }
  }

  // First fit of the largest buffers first, among those that live at the same time.
  void PlaceBuffers() {
    std::vector<Buffer*> order, placed;
    for (Buffer& buffer : plan_.buffers) order.push_back(&buffer);
    std::stable_sort(order.begin(), order.end(),
                     [](const Buffer* a, const Buffer* b) { return a->bytes > b->bytes; });
    for (Buffer* buffer : order) {
      int64_t offset = 0;
      for (const Buffer* other : placed) {  // ascending offsets
        if (other->last < buffer->first || buffer->last < other->first) continue;
        if (offset + buffer->bytes <= other->offset) break;
        offset = std::max(offset, AlignUp(other->offset + other->bytes, kBufferAlignment));
      }
      buffer->offset = offset;
      plan_.step_bytes =
          std::max(plan_.step_bytes, AlignUp(offset + buffer->bytes, kBufferAlignment));
      placed.insert(
          std::upper_bound(placed.begin(), placed.end(), buffer,
                           [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; }),
          buffer);
    }
  }

  const Program& program_;
  const std::vector<WeightSlice>& slices_;
  const int group_size_;
  const BackendOptions& options_;
  std::vector<Needs> needs_;   // by ValueId
  std::vector<Place> places_;  // by ValueId
  int op_ = 0;
  Plan plan_;
};

}  // namespace

Result<Plan> MakePlan(const Program& program, const std::vector<WeightSlice>& slices,
                      int group_size, const BackendOptions& options) {
  return Planner(program, slices, group_size, options).Make();
}

int64_t KvBlockBytes(const KvShape& kv, int block_size) {
  if (kv.layers == 0) return 0;
  return int64_t{kv.layers} * (block_size / kernels::kKvTokens) *
         kernels::KvSubBlockElements(kv.kv_heads, kv.head_dim) * sizeof(uint16_t);
}

int64_t KvLayerStride(const KvShape& kv, int block_size, int block_count) {
  if (kv.layers == 0) return 0;
  const int64_t bytes = KvBlockBytes(kv, block_size) / kv.layers * block_count;
  const int64_t spread = kHugePage / kv.layers / 64 * 64;
  return (bytes + kHugePage - 1) / kHugePage * kHugePage + spread;
}

}  // namespace staffel::cpu
