#include "model/config_reader.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "base/strings.h"

namespace staffel {
namespace {

// Above every published model by an order of magnitude; they bound what is allocated and multiplied
// before the tensors confirm the numbers.
constexpr int kLayersMax = 4096;
constexpr int kHiddenMax = 1 << 18;
constexpr int kFfnMax = 1 << 20;
constexpr int kHeadsMax = 4096;
constexpr int kHeadDimMax = 4096;
constexpr int kContextMax = 1 << 28;
constexpr int kVocabMax = 1 << 24;

constexpr std::string_view kKnownKeys[] = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon",
    "attention.scale",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.causal",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "expert_count",
    "expert_used_count",
};

}  // namespace

Result<int> ConfigReader::Int(std::string_view key, int min, int max) const {
  STAFFEL_ASSIGN_OR_RETURN(int64_t value, metadata_.Int(Name(key), min, max));
  return static_cast<int>(value);
}

Result<int> ConfigReader::IntOr(std::string_view key, int min, int max, int fallback) const {
  if (!Has(key)) return fallback;
  return Int(key, min, max);
}

Result<double> ConfigReader::Float(std::string_view key, double min, double max) const {
  STAFFEL_ASSIGN_OR_RETURN(double value, metadata_.Float(Name(key)));
  if (!(value >= min && value <= max)) {
    return absl::InvalidArgumentError(
        StrCat(Name(key), " is ", value, "; it must be in [", min, ", ", max, "]"));
  }
  return value;
}

Result<double> ConfigReader::FloatOr(std::string_view key, double min, double max,
                                     double fallback) const {
  if (!Has(key)) return fallback;
  return Float(key, min, max);
}

Status ConfigReader::ReadCommon(ModelConfig& config) const {
  ModelShape& shape = config.shape;
  STAFFEL_ASSIGN_OR_RETURN(shape.layers, Int("block_count", 1, kLayersMax));
  STAFFEL_ASSIGN_OR_RETURN(shape.context_length, Int("context_length", 1, kContextMax));
  STAFFEL_ASSIGN_OR_RETURN(shape.hidden, Int("embedding_length", 1, kHiddenMax));
  STAFFEL_ASSIGN_OR_RETURN(shape.ffn, Int("feed_forward_length", 1, kFfnMax));
  STAFFEL_RETURN_IF_ERROR(IntOr("vocab_size", 1, kVocabMax, 1).status());
  STAFFEL_RETURN_IF_ERROR(ReadHeads(shape));
  STAFFEL_ASSIGN_OR_RETURN(double eps, Float("attention.layer_norm_rms_epsilon", 1e-12, 0.1));
  config.norm_eps = static_cast<float>(eps);
  STAFFEL_ASSIGN_OR_RETURN(double scale,
                           FloatOr("attention.scale", 1e-6, 1e6, 1.0 / std::sqrt(shape.head_dim)));
  config.attention_scale = static_cast<float>(scale);
  return ReadRope(config);
}

Status ConfigReader::ReadHeads(ModelShape& shape) const {
  STAFFEL_ASSIGN_OR_RETURN(shape.q_heads, Int("attention.head_count", 1, kHeadsMax));
  STAFFEL_ASSIGN_OR_RETURN(shape.kv_heads,
                           IntOr("attention.head_count_kv", 1, kHeadsMax, shape.q_heads));
  if (shape.q_heads % shape.kv_heads != 0) {
    return absl::InvalidArgumentError(StrCat(Name("attention.head_count"), " ", shape.q_heads,
                                             " is not a multiple of ",
                                             Name("attention.head_count_kv"), " ", shape.kv_heads));
  }
  if (!Has("attention.key_length") && shape.hidden % shape.q_heads != 0) {
    return absl::InvalidArgumentError(StrCat(Name("embedding_length"), " ", shape.hidden,
                                             " is not a multiple of ", Name("attention.head_count"),
                                             " ", shape.q_heads, ", and there is no ",
                                             Name("attention.key_length")));
  }
  STAFFEL_ASSIGN_OR_RETURN(
      shape.head_dim, IntOr("attention.key_length", 1, kHeadDimMax, shape.hidden / shape.q_heads));
  STAFFEL_ASSIGN_OR_RETURN(int value_length,
                           IntOr("attention.value_length", 1, kHeadDimMax, shape.head_dim));
  if (value_length != shape.head_dim) {
    return absl::UnimplementedError(StrCat(Name("attention.value_length"), " ", value_length,
                                           " differs from the key length ", shape.head_dim,
                                           "; only equal lengths are supported"));
  }
  return absl::OkStatus();
}

Status ConfigReader::ReadRope(ModelConfig& config) const {
  RopeConfig& rope = config.rope;
  STAFFEL_ASSIGN_OR_RETURN(rope.dim,
                           IntOr("rope.dimension_count", 2, kHeadDimMax, config.shape.head_dim));
  if (rope.dim > config.shape.head_dim || rope.dim % 2 != 0) {
    return absl::InvalidArgumentError(StrCat(Name("rope.dimension_count"), " is ", rope.dim,
                                             "; it must be even and at most the head size ",
                                             config.shape.head_dim));
  }
  STAFFEL_ASSIGN_OR_RETURN(rope.base, FloatOr("rope.freq_base", 1.0, 1e12, 10000.0));
  rope.local_base = rope.base;

  std::string type = "linear";
  if (Has("rope.scaling.type")) {
    STAFFEL_ASSIGN_OR_RETURN(type, metadata_.String(Name("rope.scaling.type")));
  }
  if (type == "none") return absl::OkStatus();
  if (type != "linear") {
    return absl::UnimplementedError(StrCat(Name("rope.scaling.type"), " is \"", type,
                                           "\"; only \"none\" and \"linear\" are supported"));
  }
  // Older files have the factor under rope.scale_linear. 0 means that there is none.
  const char* key = Has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  STAFFEL_ASSIGN_OR_RETURN(double factor, FloatOr(key, 0.0, 1e6, 0.0));
  if (factor > 0 && factor < 1e-3) {
    return absl::InvalidArgumentError(
        StrCat(Name(key), " is ", factor, "; it must be 0 (none) or at least 0.001"));
  }
  rope.position_scale = factor == 0 ? 1.0 : 1.0 / factor;
  rope.local_position_scale = rope.position_scale;
  return absl::OkStatus();
}

Status ConfigReader::ReadWindows(ModelConfig& config, int global_every) const {
  int layers = config.shape.layers;
  config.windows.assign(layers, 0);
  STAFFEL_ASSIGN_OR_RETURN(int window, IntOr("attention.sliding_window", 0, kContextMax, 0));
  if (window == 0) return absl::OkStatus();

  const std::string_view pattern = "attention.sliding_window_pattern";
  if (Has(pattern)) {
    Result<std::vector<int64_t>> flags = metadata_.IntArray(Name(pattern));
    if (flags.ok()) {
      if (static_cast<int>(flags->size()) != layers) {
        return absl::InvalidArgumentError(
            StrCat(Name(pattern), " has ", flags->size(), " entries for ", layers, " layers"));
      }
      for (int layer = 0; layer < layers; ++layer) {
        config.windows[layer] = (*flags)[layer] != 0 ? window : 0;
      }
      return absl::OkStatus();
    }
    STAFFEL_ASSIGN_OR_RETURN(global_every, Int(pattern, 0, kLayersMax));
  }
  for (int layer = 0; layer < layers; ++layer) {
    bool global = global_every > 0 && layer % global_every == global_every - 1;
    config.windows[layer] = global ? 0 : window;
  }
  return absl::OkStatus();
}

Status ConfigReader::RefuseUnlessNeutral(std::string_view key, double neutral) const {
  if (!Has(key)) return absl::OkStatus();
  STAFFEL_ASSIGN_OR_RETURN(double value, metadata_.Float(Name(key)));
  if (value == neutral) return absl::OkStatus();
  return absl::UnimplementedError(
      StrCat(Name(key), " is ", value, "; this build supports only ", neutral));
}

Status ConfigReader::RefuseUnsupported() const {
  if (Has("expert_count")) {
    STAFFEL_ASSIGN_OR_RETURN(int64_t experts,
                             metadata_.Int(Name("expert_count"), 0, int64_t{1} << 31));
    if (experts > 0) {
      return absl::UnimplementedError(
          StrCat(Name("expert_count"), " is ", experts, "; mixtures of experts are not supported"));
    }
  }
  if (Has("attention.causal")) {
    STAFFEL_ASSIGN_OR_RETURN(bool causal, metadata_.Bool(Name("attention.causal")));
    if (!causal) {
      return absl::UnimplementedError(StrCat(
          Name("attention.causal"), " is false; models that do not generate are not supported"));
    }
  }
  STAFFEL_RETURN_IF_ERROR(RefuseUnlessNeutral("attention.clamp_kqv", 0));
  STAFFEL_RETURN_IF_ERROR(RefuseUnlessNeutral("attention.max_alibi_bias", 0));
  STAFFEL_RETURN_IF_ERROR(RefuseUnlessNeutral("attn_logit_softcapping", 0));
  STAFFEL_RETURN_IF_ERROR(RefuseUnlessNeutral("final_logit_softcapping", 0));
  STAFFEL_RETURN_IF_ERROR(RefuseUnlessNeutral("logit_scale", 0));
  STAFFEL_RETURN_IF_ERROR(RefuseUnlessNeutral("rope.scaling.attn_factor", 1));

  for (const std::string& name : metadata_.Keys()) {
    if (!absl::StartsWith(name, prefix_)) continue;
    std::string_view key = std::string_view(name).substr(prefix_.size());
    bool touches_computation = key.starts_with("attention.") || key.starts_with("rope.") ||
                               key.starts_with("expert") || key.starts_with("ssm.");
    if (touches_computation &&
        std::find(std::begin(kKnownKeys), std::end(kKnownKeys), key) == std::end(kKnownKeys)) {
      return absl::UnimplementedError(
          StrCat("this build does not know the key ", name,
                 ", which changes the computation; the file may be newer than this program"));
    }
  }
  return absl::OkStatus();
}

}  // namespace staffel
