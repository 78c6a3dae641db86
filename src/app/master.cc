#include "app/master.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "app/cluster.h"
#include "app/cluster_report.h"
#include "app/commands.h"
#include "app/front.h"
#include "app/model_grammars.h"
#include "app/model_setup.h"
#include "app/option_sources.h"
#include "app/service_notify.h"
#include "app/stop_signals.h"
#include "app/version.h"
#include "base/strings.h"
#include "engine/replica_router.h"
#include "modelfile/model_digest.h"
#include "modelfile/open.h"
#include "transport/grpc/cluster_server.h"

namespace staffel {
namespace {

std::string RandomHex() {
  std::random_device random;
  std::string text;
  for (int i = 0; i < 4; ++i) {
    char word[9];
    std::snprintf(word, sizeof word, "%08x", static_cast<unsigned>(random()));
    text += word;
  }
  return text;
}

// A model's file stays open: workers without one read it from here.
struct OpenModel {
  ClusterModel model;
  std::shared_ptr<const ModelFile> file;
};

Result<OpenModel> Open(const ServeOptions& options) {
  const auto with_path = [&](const Status& status) {
    return Status(status.code(),
                  StrCat("cannot serve '", options.model, "': ", std::string(status.message())));
  };
  OpenModel open;
  STAFFEL_ASSIGN_OR_RETURN(open.file, OpenModelFile(options.model));
  ClusterModel& model = open.model;
  model.options = options;
  Result<ModelConfig> config = ReadConfig(*open.file);
  if (!config.ok()) return with_path(config.status());
  model.config = *std::move(config);
  Result<ModelText> text = LoadModelText(*open.file, TextOptionsOf(options));
  if (!text.ok()) return with_path(text.status());
  model.text = *std::move(text);
  Result<int> max_model_len = MaxModelLen(model.config, options);
  if (!max_model_len.ok()) return with_path(max_model_len.status());
  model.max_model_len = *max_model_len;
  Result<ModelRef> ref = MakeModelRef(*open.file, ServedNames(options).front());
  if (!ref.ok()) return with_path(ref.status());
  model.ref = *std::move(ref);
  return open;
}

// Copies [offset, offset + out.size()) of a model's files, which count as one.
Status ReadBytes(const ModelFile& file, int64_t offset, absl::Span<uint8_t> out) {
  for (const ModelPart& part : file.parts()) {
    const auto part_bytes = static_cast<int64_t>(part.bytes.size());
    if (offset < part_bytes) {
      const size_t count = std::min<size_t>(out.size(), part_bytes - offset);
      std::memcpy(out.data(), part.bytes.data() + offset, count);
      out.remove_prefix(count);
      offset = part_bytes;
    }
    offset -= part_bytes;
    if (out.empty()) return absl::OkStatus();
  }
  return absl::OutOfRangeError(
      StrCat("the model ends ", out.size(), " bytes before the end of what was asked for"));
}

// The front's view of the cluster's models: published anew whenever one comes or goes.
class Publisher {
 public:
  Publisher(Front& front, Time begin) : front_(front), begin_(begin) {}

  void Attach(Cluster* cluster) {
    cluster_ = cluster;
    for (size_t m = 0; m < cluster->models().size(); ++m) served_.push_back(MakeModel(m));
    front_.metrics().AddSource([cluster] { return ClusterMetrics(cluster->Describe()); });
    front_.server().Handle(
        "GET", "/v1/cluster", [cluster](HttpRequest, std::shared_ptr<ResponseWriter> writer) {
          writer->Send(200, "application/json", ClusterJson(cluster->Describe()));
        });
  }

  // On the cluster's thread, and once before it starts.
  void Publish() {
    auto models = std::make_shared<api::ModelSet>();
    for (size_t m = 0; m < served_.size(); ++m) {
      const int index = static_cast<int>(m);
      if (cluster_->has_served(index)) {
        if (!announced_) Announce(cluster_->models()[m].text);
        auto model = std::make_shared<api::ServedModel>(served_[m]);
        model->limits = model->engine->limits();
        models->served.push_back(std::move(model));
      } else {
        models->pending.push_back(
            {served_[m].names, std::string(cluster_->health(index).message())});
      }
    }
    front_.service().SetModels(std::move(models));
  }

  Status health() const {
    Status first;
    for (size_t m = 0; m < served_.size(); ++m) {
      const Status status = cluster_->health(static_cast<int>(m));
      if (status.ok()) return status;
      if (first.ok()) first = status;
    }
    return first;
  }

  std::string degraded() const {
    std::string text;
    for (size_t m = 0; m < served_.size(); ++m) {
      const std::string more = cluster_->degraded(static_cast<int>(m));
      StrAppend(text, text.empty() || more.empty() ? "" : "; ", more);
    }
    return text;
  }

 private:
  api::ServedModel MakeModel(size_t index) {
    const ClusterModel& model = cluster_->models()[index];
    api::ServedModel served;
    served.names = ServedNames(model.options);
    served.created_unix_s = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    served.facts = model.text.facts;
    served.tokenizer = model.text.tokenizer;
    served.grammars =
        std::make_shared<ModelGrammars>([tokenizer = model.text.tokenizer] { return tokenizer; });
    served.chat_template = model.text.chat_template;
    served.formats = model.text.formats;
    served.chat_template_problem = model.text.chat_template_problem;
    served.pooling = model.text.pooling;
    served.embedding_problem = model.text.embedding_problem;
    served.request_templates = model.options.trust_request_chat_template;
    const std::vector<Engine*> engines = cluster_->engines(static_cast<int>(index));
    served.max_sequences = model.options.max_num_seqs * static_cast<int>(engines.size());
    if (engines.size() == 1) {
      served.engine = {std::shared_ptr<EngineClient>(), engines.front()};  // the cluster owns it
    } else {
      served.engine = std::make_shared<ReplicaRouter>(
          std::vector<EngineClient*>(engines.begin(), engines.end()),
          ReplicaRouterOptions{.hash_key = RandomHashKey()});
    }
    served.metrics = front_.metrics().AddModel(
        served.names.front(), [engine = served.engine] { return engine->stats(); });
    return served;
  }

  void Announce(const ModelText& text) {
    announced_ = true;
    front_.LogReady(text, SystemClock().Now() - begin_);
    NotifyService("READY=1\nSTATUS=serving");
  }

  Front& front_;
  const Time begin_;
  Cluster* cluster_ = nullptr;
  std::vector<api::ServedModel> served_;
  bool announced_ = false;
};

// A cluster of this machine alone: a socket in no folder, and a token that nobody has to keep.
ClusterServerOptions ListenOptions(const ClusterOptions& options, bool local) {
  ClusterServerOptions listen;
  if (local) {
    listen.listen = {StrCat("unix-abstract:staffel-", getpid(), "-", RandomHex())};
    listen.token = RandomHex();
  } else {
    std::string host = options.host;
    if (host.find(':') != host.npos && host[0] != '[') host = StrCat("[", host, "]");
    listen.listen = {StrCat(host, ":", options.port)};
    listen.token = options.token;
    listen.without_token = options.token.empty();
    listen.tls = {options.tls_cert, options.tls_key, options.tls_ca};
  }
  const auto milliseconds = [](Duration duration) {
    return static_cast<int>(
        std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
  };
  listen.heartbeat_ms = milliseconds(options.heartbeat);
  listen.dead_after_ms = milliseconds(options.dead_after);
  return listen;
}

std::vector<Engine*> AllEngines(const Cluster& cluster) {
  std::vector<Engine*> all;
  for (size_t m = 0; m < cluster.models().size(); ++m) {
    for (Engine* engine : cluster.engines(static_cast<int>(m))) all.push_back(engine);
  }
  return all;
}

}  // namespace

int ServeCluster(const MasterOptions& options, std::optional<LocalWorkerOptions> local) {
  const Time begin = SystemClock().Now();
  StopSignals signals;
  Front front(options.front);
  if (const Status status = front.Start("No model is served yet."); !status.ok()) {
    return Refuse(options.front, status,
                  absl::IsInvalidArgument(status) ? kExitUsage : kExitFailure);
  }
  spdlog::info("staffel {}, port {}", Version(), front.server().port());

  std::vector<ClusterModel> models;
  std::vector<std::shared_ptr<const ModelFile>> files;
  ClusterServerOptions listen = ListenOptions(options.cluster, local.has_value());
  listen.read_model = [&](const std::string& digest, int64_t offset, absl::Span<uint8_t> out) {
    for (size_t m = 0; m < models.size(); ++m) {
      if (models[m].ref.digest == digest) return ReadBytes(*files[m], offset, out);
    }
    return Status(absl::NotFoundError("this master has no model of that digest"));
  };
  // Before the models are read: workers that are started at the same time find the port open, and
  // are let in when the cluster starts.
  Result<std::unique_ptr<ClusterServer>> server = MakeClusterServer(listen);
  if (!server.ok()) return Refuse(options.front, server.status(), kExitFailure);
  for (const ServeOptions& model : options.models) {
    spdlog::info("reading {}", model.model);
    Result<OpenModel> open = Open(model);
    if (!open.ok()) return Refuse(options.front, open.status(), kExitFailure);
    models.push_back(std::move(open->model));
    files.push_back(std::move(open->file));
  }
  Publisher publisher(front, begin);
  Result<std::unique_ptr<Cluster>> cluster = Cluster::Create(
      options.cluster, models, server->get(),
      {.on_change = [&] { publisher.Publish(); }, .on_delivered = [&] { front.WakeStreams(); }});
  if (!cluster.ok()) return Refuse(options.front, cluster.status(), kExitFailure);
  publisher.Attach(cluster->get());
  publisher.Publish();
  // From here on routes say themselves which model they wait for.
  front.SetAvailable([&] { return publisher.health(); }, [&] { return publisher.degraded(); });
  (*cluster)->Start();
  std::unique_ptr<LocalWorkers> workers;
  const auto stop = [&] {
    (*cluster)->Stop();
    workers.reset();
    server->reset();  // before the handler of its events
  };
  if (local) {
    local->master = (*server)->address();
    local->token = listen.token;
    Result<std::unique_ptr<LocalWorkers>> started = LocalWorkers::Start(*std::move(local));
    if (!started.ok()) {
      front.Shutdown(Duration::zero());  // its handlers ask the cluster
      stop();
      return Refuse(options.front, started.status(), kExitFailure);
    }
    workers = *std::move(started);
  } else {
    spdlog::info("waiting for workers at {}; on each node: staffel worker --master HOST:{}",
                 (*server)->address(), options.cluster.port);
    if (listen.token.empty()) {
      spdlog::warn("no --token is set: whoever reaches that address can join as a worker");
    }
  }

  signals.EndAtFirst(false);
  const std::string reason = WaitForEnd(signals, [&] { return publisher.health(); });
  spdlog::info(
      "{}: finishing requests, at most {} s; a second signal ends at once", reason,
      std::chrono::duration_cast<std::chrono::seconds>(options.front.drain_timeout).count());
  Drain(front, AllEngines(**cluster), options.front.drain_timeout);
  stop();
  spdlog::info("stopped");
  return kExitOk;
}

int RunMaster(std::vector<std::string> args) {
  MasterOptions options;
  const Result<bool> help = LoadMasterOptions(&options, std::move(args), environ);
  if (!help.ok()) return Fail(help.status(), kExitUsage);
  if (*help) {
    std::printf(
        "usage: staffel master MODEL [options]\n%s\nSeveral models: a --config file with a list "
        "`models`, each with the options of its own (docs/cluster.md).\n",
        MasterOptionList(&options).Help().c_str());
    return kExitOk;
  }
  InitLogging(options.front.log_level, options.front.log_format);
  return ServeCluster(options, std::nullopt);
}

}  // namespace staffel
