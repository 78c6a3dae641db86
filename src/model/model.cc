#include "model/model.h"

#include "base/check.h"
#include "base/strings.h"
#include "model/architecture.h"

namespace staffel {
namespace {

constexpr const Architecture* kArchitectures[] = {&kGemma3, &kLlama, &kQwen2};

}  // namespace

Result<const Architecture*> FindArchitecture(const std::string& name) {
  std::string known;
  for (const Architecture* architecture : kArchitectures) {
    if (name == architecture->name) return architecture;
    StrAppend(known, known.empty() ? "" : ", ", architecture->name);
  }
  return absl::UnimplementedError(StrCat("general.architecture is \"", name,
                                         "\", which this build does not know; known are ", known));
}

Result<Program> BuildProgram(const ModelConfig& config, const RankShard& shard) {
  STAFFEL_ASSIGN_OR_RETURN(const Architecture* architecture,
                           FindArchitecture(config.shape.architecture));
  STAFFEL_CHECK_GT(shard.layers.size(), 0);
  STAFFEL_CHECK_LE(shard.layers.end, config.shape.layers);
  const int group_size = config.shape.q_heads / config.shape.kv_heads;
  STAFFEL_CHECK_EQ(shard.kv_heads.begin, shard.q_heads.begin / group_size);
  STAFFEL_CHECK_EQ(shard.kv_heads.end, (shard.q_heads.end - 1) / group_size + 1);
  return architecture->build(config, shard);
}

}  // namespace staffel
