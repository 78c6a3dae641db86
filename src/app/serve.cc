// `staffel serve MODEL`: the life of the server process.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "app/commands.h"
#include "app/front.h"
#include "app/master.h"
#include "app/option_sources.h"
#include "app/replica.h"
#include "app/serve_options.h"
#include "app/service_notify.h"
#include "app/stop_signals.h"
#include "app/version.h"
#include "base/strings.h"
#include "device/thread_pool.h"

namespace staffel {
namespace {

int Serve(const ServeOptions& options) {
  const Time begin = SystemClock().Now();
  StopSignals signals;
  Front front(options);
  if (const Status status = front.Start("The model is being loaded."); !status.ok()) {
    return Refuse(options, status, absl::IsInvalidArgument(status) ? kExitUsage : kExitFailure);
  }
  spdlog::info("staffel {}, loading {}, port {}", Version(), options.model, front.server().port());

  LoadingProgress progress(&front);
  std::atomic<bool> lost = false;
  const Result<std::shared_ptr<Replica>> loaded = Replica::Load(
      options, {.progress = [&](double share) { progress.Report(share); },
                .on_loss =
                    [&](const Status& reason) {
                      spdlog::error("the worker has failed: {}", std::string(reason.message()));
                      lost = true;
                      signals.Request("the worker has failed");
                    },
                .on_delivered = [&front] { front.WakeStreams(); }});
  if (!loaded.ok()) return Refuse(options, loaded.status(), kExitFailure);
  const std::shared_ptr<Replica>& replica = *loaded;
  const std::vector<std::string> names = ServedNames(options);
  // Whoever holds the engine holds the worker and the transport behind it too.
  const std::shared_ptr<Engine> engine(replica, &replica->engine());

  auto model = std::make_shared<api::ServedModel>();
  model->names = names;
  model->created_unix_s = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  model->facts = replica->text().facts;
  model->tokenizer = replica->text().tokenizer;
  model->chat_template = replica->text().chat_template;
  model->formats = replica->text().formats;
  model->chat_template_problem = replica->text().chat_template_problem;
  model->pooling = replica->text().pooling;
  model->embedding_problem = replica->text().embedding_problem;
  model->request_templates = options.trust_request_chat_template;
  model->grammars = replica->grammars();
  model->engine = engine;
  model->limits = engine->limits();
  model->max_sequences = options.max_num_seqs;
  model->metrics = front.metrics().AddModel(names.front(), [engine] { return engine->stats(); });
  front.service().SetModels(
      std::make_shared<api::ModelSet>(api::ModelSet{.served = {std::move(model)}, .pending = {}}));
  front.SetAvailable([engine] { return engine->health(); });
  signals.EndAtFirst(false);
  spdlog::info("{}", replica->description());
  front.LogReady(replica->text(), SystemClock().Now() - begin);
  signals.Wait(kSettle);
  NotifyService("READY=1\nSTATUS=serving");

  const std::string reason = WaitForEnd(signals, [&] { return engine->health(); });
  spdlog::info("{}: finishing requests, at most {} s; a second signal ends at once", reason,
               std::chrono::duration_cast<std::chrono::seconds>(options.drain_timeout).count());
  Drain(front, {engine.get()}, options.drain_timeout);
  engine->Stop();
  spdlog::info("stopped");
  return lost ? kExitFailure : kExitOk;
}

// In one process there is nothing to choose: a size of 0 is 1.
int RankCount(const ServeOptions& options) {
  return std::max(1, options.tensor_parallel) * std::max(1, options.pipeline_parallel) *
         options.data_parallel;
}

// Each rank a process of its own, with its share of the threads.
int ServeLocalCluster(const ServeOptions& options) {
  MasterOptions master;
  master.front = options;
  master.front.tensor_parallel = std::max(1, options.tensor_parallel);
  master.front.pipeline_parallel = std::max(1, options.pipeline_parallel);
  master.models = {master.front};
  const int threads = options.threads > 0 ? options.threads : UsableCores();
  LocalWorkerOptions workers;
  workers.count = RankCount(options);
  // They end with the server, which has let requests finish before.
  workers.flags = {"--threads", StrCat(std::max(1, threads / workers.count)), "--drain-timeout",
                   "0",
                   // Alike: what a probe would tell apart is noise.
                   "--speed", "1"};
  if (options.log_format == LogFormat::kJson)
    workers.flags.insert(workers.flags.end(), {"--log-format", "json"});
  return ServeCluster(master, std::move(workers));
}

}  // namespace

int RunServe(std::vector<std::string> args) {
  ServeOptions options;
  const OptionList list = ServeOptionList(&options);
  const Result<bool> help = LoadOptions(list, "model", std::move(args), environ);
  if (!help.ok()) return Fail(help.status(), kExitUsage);
  if (*help) {
    std::printf(
        "usage: staffel serve MODEL [options]\n%s\nEach option is also a variable "
        "(--max-queue: STAFFEL_MAX_QUEUE) and a key of the --config file (max_queue).\n",
        list.Help().c_str());
    return kExitOk;
  }
  if (const Status status = FinishServeOptions(&options); !status.ok()) {
    return Fail(status, kExitUsage);
  }
  InitLogging(options.log_level, options.log_format);
  return RankCount(options) > 1 ? ServeLocalCluster(options) : Serve(options);
}

}  // namespace staffel
