#include "app/replica.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <future>
#include <utility>

#include "app/devices.h"
#include "app/model_setup.h"
#include "base/available_memory.h"
#include "base/option_values.h"
#include "base/strings.h"
#include "model/model.h"
#include "modelfile/open.h"
#include "plan/kv_pool.h"
#include "plan/placement.h"

namespace staffel {
namespace {

// Vocabulary, threads, buffers of the fronts: what a small server takes beside weights and KV.
constexpr int64_t kReserveBytes = int64_t{64} << 20;

Status AddPath(const Status& status, const std::string& path) {
  return Status(status.code(),
                StrCat("cannot serve '", path, "': ", std::string(status.message())));
}

int64_t WeightBytes(const ModelFile& file) {
  int64_t bytes = 0;
  for (const TensorView& tensor : file.tensors())
    bytes += static_cast<int64_t>(tensor.bytes.size());
  return bytes;
}

}  // namespace

Replica::~Replica() = default;

Status Replica::LoadWeights(const ModelFile& file, const ModelConfig& config,
                            const ServeOptions& options, std::function<void(double)> progress) {
  STAFFEL_ASSIGN_OR_RETURN(const int max_model_len, MaxModelLen(config, options));
  const int64_t available = AvailableMemoryBytes();
  const int64_t weights = WeightBytes(file);
  const int logit_rows = LogitRows(options);
  const int64_t logits = int64_t{4} * logit_rows * config.shape.vocab;
  const int64_t free_bytes = available - weights - logits - kReserveBytes;
  if (free_bytes <= 0) {
    return absl::ResourceExhaustedError(
        StrCat("the model needs about ", HumanBytes(weights), " of memory for weights and ",
               HumanBytes(logits + kReserveBytes), " for its work, but ", HumanBytes(available),
               " are available; free memory, or take a smaller quantisation of the model"));
  }
  ClusterShape cluster;
  cluster.devices.push_back({.device = {.kind = "cpu"}, .memory_bytes = available});
  STAFFEL_ASSIGN_OR_RETURN(const PlacementPlan plan, MakePlacement(config.shape, cluster, {}));
  STAFFEL_ASSIGN_OR_RETURN(const Program program, BuildProgram(config, plan.ranks.front()));

  STAFFEL_ASSIGN_OR_RETURN(backend_, MakeBackend(options));
  spdlog::info("{}", backend_->Describe());
  STAFFEL_ASSIGN_OR_RETURN(
      const KvPoolSize pool,
      SizeKvPool({.memory_bytes = free_bytes,
                  .kv_bytes_per_block = backend_->kv_bytes_per_block(program, options.block_size),
                  .block_size = options.block_size,
                  .max_model_len = max_model_len,
                  .max_sequences = options.max_num_seqs,
                  .kv_blocks = options.kv_blocks,
                  .kv_memory_bytes = options.kv_memory}));
  backend_options_ = {.block_size = options.block_size,
                      .block_count = pool.block_count,
                      .max_rows = options.max_num_batched_tokens,
                      .max_sampled_rows = logit_rows,
                      .max_positions = max_model_len,
                      .activations = options.activations,
                      .progress = std::move(progress)};
  STAFFEL_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable,
                           backend_->Prepare(program, file.weights(), nullptr, backend_options_));
  backend_options_.progress = nullptr;
  description_ = StrCat(config.shape.architecture, ", ", HumanBytes(executable->weight_bytes()),
                        " weights, ", pool.block_count, " KV blocks of ", options.block_size,
                        " tokens (", HumanBytes(pool.bytes), ")");
  return worker_.Configure({.epoch = 1,
                            .vocab = config.shape.vocab,
                            .options = backend_options_,
                            .executable = std::move(executable),
                            .grammars = grammars_});
}

Status Replica::StartEngine(const ModelConfig& config, const ServeOptions& options,
                            Callbacks callbacks) {
  transport_ =
      std::make_unique<InprocTransport>([this](const StepPlan& plan) { return worker_.Run(plan); });
  EngineOptions engine = EngineOptionsFor(config, options, backend_options_.max_positions,
                                          std::move(callbacks.on_delivered));
  engine.scheduler.block_count = backend_options_.block_count;
  if (callbacks.on_loss) {
    engine.on_loss = [on_loss = std::move(callbacks.on_loss)](int, const Status& reason) {
      on_loss(reason);
    };
  }
  STAFFEL_ASSIGN_OR_RETURN(engine_, Engine::Create(std::move(engine), transport_.get(), &clock_));
  engine_->Start();
  return absl::OkStatus();
}

Result<std::shared_ptr<Replica>> Replica::Load(const ServeOptions& options, Callbacks callbacks) {
  STAFFEL_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFile> file, OpenModelFile(options.model));
  const Result<ModelConfig> config = ReadConfig(*file);
  if (!config.ok()) return AddPath(config.status(), options.model);
  std::shared_ptr<Replica> replica(new Replica);
  // Asked by requests only, when text_ is there.
  replica->grammars_ = std::make_shared<ModelGrammars>(
      [replica = replica.get()] { return replica->text_.tokenizer; });
  // The vocabulary takes as long as the weights of a small model, and needs one core.
  std::future<Status> tokenizer = std::async(std::launch::async, [&]() -> Status {
    STAFFEL_ASSIGN_OR_RETURN(replica->text_, LoadModelText(*file, TextOptionsOf(options)));
    return absl::OkStatus();
  });
  const Status weights = replica->LoadWeights(*file, *config, options, callbacks.progress);
  const Status text = tokenizer.get();
  if (!text.ok()) return AddPath(text, options.model);
  if (!weights.ok()) return AddPath(weights, options.model);
  STAFFEL_RETURN_IF_ERROR(replica->StartEngine(*config, options, std::move(callbacks)));
  return replica;
}

}  // namespace staffel
