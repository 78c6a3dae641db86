#include <type_traits>

#include "base/strings.h"
#include "model/model.h"

namespace staffel {
namespace {

// One op a line: "%7 = linear %6, w2 w3 w4". Values and weights by number; tables of both follow.
class Printer {
 public:
  explicit Printer(const Program& program) : program_(program) {}

  std::string Print() {
    StrAppend(out_, "kv: ", program_.kv.layers, " layers, ", program_.kv.kv_heads, " heads of ",
              program_.kv.head_dim, "\n");
    for (const Op& op : program_.ops) {
      out_ += "  ";
      std::visit([this](const auto& concrete) { PrintOp(concrete); }, op);
      out_ += '\n';
    }
    if (program_.logits != ValueId::kNone) StrAppend(out_, "logits: ", V(program_.logits), "\n");
    PrintWeights();
    return std::move(out_);
  }

 private:
  std::string V(ValueId id) const {
    const Value& value = program_.value(id);
    return StrCat("%", value.name, "[", value.rows == RowDim::kTokens ? "T" : "R", ", ", value.cols,
                  "]");
  }
  std::string W(WeightId id) const { return StrCat("w", static_cast<int>(id)); }

  void PrintOp(const EmbedOp& op) {
    StrAppend(out_, V(op.out), " = embed ", W(op.weight), ", scale ", op.scale);
  }
  void PrintOp(const AddRmsNormOp& op) {
    StrAppend(out_, V(op.out), " = ");
    if (op.delta == ValueId::kNone) {
      StrAppend(out_, "rms_norm ", V(op.residual));
    } else {
      StrAppend(out_, "add_rms_norm ", V(op.residual), " += ", V(op.delta));
    }
    if (op.post_norm != WeightId::kNone) StrAppend(out_, " normed by ", W(op.post_norm));
    StrAppend(out_, ", ", W(op.weight), ", eps ", op.eps);
  }
  void PrintOp(const LinearOp& op) {
    StrAppend(out_, V(op.out), " = linear ", V(op.in), ",");
    for (WeightId part : op.parts) StrAppend(out_, " ", W(part));
    for (size_t i = 0; i < op.biases.size(); ++i) {
      StrAppend(out_, i == 0 ? ", bias " : " ",
                op.biases[i] == WeightId::kNone ? "none" : W(op.biases[i]));
    }
  }
  void PrintOp(const GatedLinearOp& op) {
    StrAppend(out_, V(op.out), " = gated_linear ", V(op.in), ", ",
              op.activation == Activation::kSilu ? "silu " : "gelu_tanh ", W(op.gate), ", up ",
              W(op.up));
  }
  void PrintOp(const RopeAndStoreKvOp& op) {
    StrAppend(out_, "rope_and_store_kv ", V(op.qkv), ", layer ", op.layer, ", heads ",
              op.heads.q_heads, " + ", op.heads.kv_heads, " of ", op.head_dim, ", rotate ",
              op.rope_dim, op.style == RopeStyle::kInterleaved ? " interleaved" : " halves",
              ", base ", op.base);
    if (op.position_scale != 1.0) StrAppend(out_, ", positions * ", op.position_scale);
    if (op.frequency_factors != WeightId::kNone) {
      StrAppend(out_, ", factors ", W(op.frequency_factors));
    }
    if (op.q_norm != WeightId::kNone) {
      StrAppend(out_, ", norms ", W(op.q_norm), " ", W(op.k_norm), ", eps ", op.norm_eps);
    }
  }
  void PrintOp(const PagedAttentionOp& op) {
    StrAppend(out_, V(op.out), " = paged_attention ", V(op.qkv), ", layer ", op.layer, ", heads ",
              op.heads.q_heads, " / ", op.heads.kv_heads, " of ", op.head_dim, ", scale ",
              op.scale);
    if (op.heads.q_heads != op.heads.kv_heads * op.heads.group_size) {
      StrAppend(out_, ", from ", op.heads.first, " of a group of ", op.heads.group_size);
    }
    if (op.window > 0) StrAppend(out_, ", window ", op.window);
  }
  void PrintOp(const AllReduceOp& op) { StrAppend(out_, "all_reduce ", V(op.value)); }
  void PrintOp(const GatherOp& op) {
    if (op.out != ValueId::kNone) StrAppend(out_, V(op.out), " = ");
    StrAppend(out_, "gather ", V(op.in), ", columns");
    for (int cols : op.cols) StrAppend(out_, " ", cols);
    StrAppend(out_, " of ranks");
    for (int rank : op.ranks) StrAppend(out_, " ", rank);
  }
  void PrintOp(const SendOp& op) { StrAppend(out_, "send ", V(op.value), " to rank ", op.to_rank); }
  void PrintOp(const RecvOp& op) {
    StrAppend(out_, V(op.value), " = recv from rank ", op.from_rank);
  }
  void PrintOp(const TakeRowsOp& op) { StrAppend(out_, V(op.out), " = take_rows ", V(op.in)); }

  void PrintWeights() {
    for (size_t i = 0; i < program_.weights.size(); ++i) {
      const WeightSpec& spec = program_.weights[i];
      StrAppend(out_, "w", i, ": ", spec.tensor, " [", spec.rows.begin, ", ", spec.rows.end, ")");
      if (!spec.vector) StrAppend(out_, " x [", spec.cols.begin, ", ", spec.cols.end, ")");
      out_ += '\n';
    }
  }

  const Program& program_;
  std::string out_;
};

}  // namespace

std::string PrintProgram(const Program& program) { return Printer(program).Print(); }

}  // namespace staffel
