#include "app/resident_shard.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "app/model_grammars.h"
#include "app/shard_ranges.h"
#include "base/option_values.h"
#include "base/strings.h"
#include "model/model.h"
#include "source/range_set.h"
#include "text/tokenizer.h"

namespace staffel {
namespace {

// Buffers of links, message queues, the program itself: what a worker takes beside the shard.
constexpr int64_t kReserveBytes = int64_t{32} << 20;

Result<BackendOptions> OptionsFor(const RankOptions& options) {
  const auto name = std::find(std::begin(kActivationTypeNames), std::end(kActivationTypeNames),
                              options.activations);
  if (name == std::end(kActivationTypeNames)) {
    return absl::InvalidArgumentError(StrCat("this worker has no activations of type '",
                                             options.activations,
                                             "'; run the same version as the master"));
  }
  BackendOptions backend;
  backend.block_size = options.block_size;
  backend.max_rows = options.max_rows;
  backend.max_sampled_rows = options.max_sampled_rows;
  backend.max_positions = options.max_positions;
  backend.activations = static_cast<ActivationType>(name - std::begin(kActivationTypeNames));
  return backend;
}

// Equal for two shards that make the same executable.
std::string Key(const StoredModel& model, const RankOptions& options, const RankShard& shard,
                const Program& program) {
  return StrCat(model.digest, " ", options.block_size, " ", options.max_rows, " ",
                options.max_sampled_rows, " ", options.max_positions, " ", options.activations,
                " group ", shard.group.size(), "\n", PrintProgram(program));
}

Result<const RankShard*> FindShard(const Configure& configure) {
  const std::vector<RankShard>& ranks = configure.plan.ranks;
  if (configure.rank < 0 || configure.rank >= static_cast<int>(ranks.size())) {
    return absl::InvalidArgumentError(StrCat("the placement has ", ranks.size(),
                                             " ranks, and this worker is to be rank ",
                                             configure.rank));
  }
  const RankShard& shard = ranks[configure.rank];
  if (std::count(shard.group.begin(), shard.group.end(), shard.rank) != 1 ||
      shard.rank != configure.rank) {
    return absl::InvalidArgumentError(
        StrCat("the placement's rank ", configure.rank, " is not in its own tensor group once"));
  }
  return &shard;
}

}  // namespace

Result<std::unique_ptr<ResidentShard>> ResidentShard::Describe(
    const Configure& configure, std::shared_ptr<const StoredModel> model, const Backend& backend,
    int64_t memory_bytes) {
  STAFFEL_ASSIGN_OR_RETURN(const RankShard* shard, FindShard(configure));
  std::unique_ptr<ResidentShard> out(new ResidentShard);
  out->shard_ = *shard;
  out->vocab_ = model->config.shape.vocab;
  STAFFEL_ASSIGN_OR_RETURN(out->program_, BuildProgram(model->config, *shard));
  out->key_ = Key(*model, configure.options, *shard, out->program_);
  STAFFEL_ASSIGN_OR_RETURN(out->options_, OptionsFor(configure.options));
  const int group_size = static_cast<int>(shard->group.size());
  STAFFEL_ASSIGN_OR_RETURN(out->need_, backend.Measure(out->program_, model->file->weights(),
                                                       group_size, out->options_));
  STAFFEL_ASSIGN_OR_RETURN(out->ranges_, ShardRanges(out->program_, *model->file));
  out->model_bytes_ = TotalBytes(out->ranges_);
  out->kv_bytes_per_block_ =
      backend.kv_bytes_per_block(out->program_, configure.options.block_size);
  out->memory_bytes_ = memory_bytes;
  const auto member = std::find(shard->group.begin(), shard->group.end(), shard->rank);
  out->group_ = std::make_unique<EpochCommunicator>(static_cast<int>(member - shard->group.begin()),
                                                    group_size);
  out->model_ = std::move(model);
  return out;
}

bool ResidentShard::Matches(const Configure& configure, const StoredModel& model) const {
  if (model.digest != model_->digest) return false;
  const Result<const RankShard*> shard = FindShard(configure);
  if (!shard.ok()) return false;
  const Result<Program> program = BuildProgram(model.config, **shard);
  return program.ok() && Key(model, configure.options, **shard, *program) == key_;
}

Status ResidentShard::FillCapacity(Capacity* capacity, int64_t limit_bytes) const {
  const bool limited = limit_bytes > 0 && limit_bytes < memory_bytes_;
  const int64_t usable = limited ? limit_bytes : memory_bytes_;
  capacity->kv_bytes_per_block = kv_bytes_per_block_;
  capacity->weight_bytes = need_.weights;
  capacity->memory_bytes = usable - need_.weights - need_.work - kReserveBytes;
  if (capacity->memory_bytes > 0) return absl::OkStatus();
  capacity->memory_bytes = 0;
  return absl::ResourceExhaustedError(
      StrCat("it needs ", HumanBytes(need_.weights), " for weights and ",
             HumanBytes(need_.work + kReserveBytes), " for its work; this worker has ",
             HumanBytes(usable), " of memory", limited ? ", its share of this host's" : ""));
}

Status ResidentShard::CheckRoom(int block_count, int64_t memory_bytes) const {
  const int64_t wanted = bytes_with(block_count);
  if (wanted <= memory_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat("it is to hold ", HumanBytes(wanted), ", and only ", HumanBytes(memory_bytes),
             " are left of the ", HumanBytes(memory_bytes_),
             " that it had a moment ago: another process "
             "of this host has taken memory; free some, or bound each with --memory"));
}

Status ResidentShard::Load(Backend& backend, const Clock& clock, int block_count,
                           std::function<void(double)> progress, std::function<bool()> cancelled) {
  worker_ = nullptr;
  block_count_ = 0;
  BackendOptions options = options_;
  options.block_count = block_count;
  options.progress = std::move(progress);
  options.cancelled = std::move(cancelled);
  STAFFEL_ASSIGN_OR_RETURN(
      std::unique_ptr<Executable> executable,
      backend.Prepare(program_, model_->file->weights(), group_.get(), options));
  options.progress = nullptr;
  options.cancelled = nullptr;
  auto worker = std::make_unique<Worker>(clock);
  WorkerSetup setup{.epoch = 0,
                    .vocab = vocab_,
                    .options = options,
                    .executable = std::move(executable),
                    .samples = program_.logits != ValueId::kNone,
                    .group = group_.get()};
  if (setup.samples) {
    setup.grammars = std::make_shared<ModelGrammars>(
        [model = model_]() -> Result<std::shared_ptr<const Tokenizer>> {
          STAFFEL_ASSIGN_OR_RETURN(TokenizerSpec spec, model->file->ReadTokenizer());
          return MakeTokenizer(std::move(spec));
        });
    setup.draws_to.assign(shard_.group.begin() + 1, shard_.group.end());
  } else if (shard_.last_stage) {
    setup.draws_from = shard_.group.front();
  }
  STAFFEL_RETURN_IF_ERROR(worker->Configure(std::move(setup)));
  worker_ = std::move(worker);
  block_count_ = block_count;
  return absl::OkStatus();
}

int64_t ResidentShard::resident_bytes() const {
  if (block_count_ == 0) return 0;
  return bytes_with(block_count_);
}

std::string ResidentShard::Description() const {
  std::string text = StrCat("layers ", shard_.layers.begin, " to ", shard_.layers.end - 1);
  if (shard_.group.size() > 1) {
    StrAppend(text, ", query heads ", shard_.q_heads.begin, " to ", shard_.q_heads.end - 1);
  }
  return StrCat(text, ", ", HumanBytes(need_.weights), " weights");
}

}  // namespace staffel
