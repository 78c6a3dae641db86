#include "app/master_options.h"

#include <set>

#include "app/front.h"
#include "app/join_options.h"
#include "app/option_sources.h"
#include "base/strings.h"

namespace staffel {
namespace {

void AddClusterOptions(OptionList& list, ClusterOptions* o) {
  const Duration day = std::chrono::hours(24);
  list.BeginGroup("Cluster");
  list.Text("cluster-host", "ADDRESS", &o->host,
            "address that workers connect to; :: takes IPv4 and IPv6");
  list.Integer("cluster-port", "PORT", &o->port, 0, 65535, "its port; 0: any free one");
  list.Text("token", "TOKEN", &o->token, "secret that workers must show to join");
  list.Text("token-file", "FILE", &o->token_file, "file with it; keeps it out of the process list");
  list.Text("tls-cert", "FILE", &o->tls_cert, "certificate of the cluster port, PEM");
  list.Text("tls-key", "FILE", &o->tls_key, "its key, PEM");
  list.Text("tls-ca", "FILE", &o->tls_ca,
            "with it, workers must show a certificate that this one has signed (mTLS)");
  list.Time("worker-wait", &o->worker_wait, Duration::zero(), day,
            "time that open requests wait for a lost worker's replacement before they fail, and "
            "that the first placement waits for all workers of its layout before fewer serve");
  list.Time("worker-dead-after", &o->dead_after, std::chrono::milliseconds(100), day,
            "silence of a worker after which it counts as lost");
  list.Time("link-dead-after", &o->link_dead_after, std::chrono::milliseconds(200), day,
            "time without a byte between two workers that wait for each other's data, after which "
            "the link between them counts as broken");
  list.Time("worker-heartbeat", &o->heartbeat, std::chrono::milliseconds(10),
            std::chrono::seconds(60), "time between two signs of life of a worker");
}

Status CheckNames(const std::vector<ServeOptions>& models) {
  std::set<std::string> seen;
  for (const ServeOptions& model : models) {
    for (const std::string& name : ServedNames(model)) {
      if (seen.insert(name).second) continue;
      return absl::InvalidArgumentError(
          StrCat("two models are served as '", name, "'; give one of them a served_model_name"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

OptionList ClusterOptionList(ClusterOptions* options) {
  OptionList list;
  AddClusterOptions(list, options);
  return list;
}

OptionList MasterOptionList(MasterOptions* options) {
  OptionList list = ServeOptionList(&options->front);
  AddClusterOptions(list, &options->cluster);
  return list;
}

Result<bool> LoadMasterOptions(MasterOptions* options, std::vector<std::string> args,
                               const char* const* environment) {
  options->front.tensor_parallel = options->front.pipeline_parallel = 0;
  const OptionList list = MasterOptionList(options);
  ServeOptions model;
  const OptionList model_list = ModelOptionList(&model);
  ModelEntries entries{.list = &model_list, .models = {}};
  STAFFEL_ASSIGN_OR_RETURN(const bool help,
                           LoadOptions(list, "model", std::move(args), environment, &entries));
  if (help) return true;
  if (entries.models.empty()) {
    options->models.push_back(options->front);
  } else if (!options->front.model.empty()) {
    return absl::InvalidArgumentError(
        "a model is given beside the `models` of the configuration file; add it to the list");
  }
  for (const std::vector<OptionValue>& values : entries.models) {
    model = options->front;
    STAFFEL_RETURN_IF_ERROR(Apply(values));
    options->models.push_back(model);
  }
  for (ServeOptions& each : options->models) {
    if (each.model.empty()) {
      return absl::InvalidArgumentError(
          "no model is given; name a GGUF file: staffel master model.gguf, or list `models` in the "
          "configuration file");
    }
    STAFFEL_RETURN_IF_ERROR(FinishModelOptions(each));
  }
  STAFFEL_RETURN_IF_ERROR(CheckNames(options->models));
  // The keys of the front; its model is only for show.
  options->front.model = options->models.front().model;
  STAFFEL_RETURN_IF_ERROR(FinishServeOptions(&options->front));
  STAFFEL_RETURN_IF_ERROR(ReadTokenFile(options->cluster.token_file, &options->cluster.token));
  return false;
}

}  // namespace staffel
