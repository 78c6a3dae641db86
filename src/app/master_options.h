// What `staffel master` can be told: the front and the defaults of its models as `staffel serve`
// has them, and the cluster.
#pragma once

#include <string>
#include <vector>

#include "app/serve_options.h"
#include "base/options.h"
#include "staffel/clock.h"
#include "staffel/status.h"

namespace staffel {

struct ClusterOptions {
  std::string host = "0.0.0.0";
  int port = 7100;
  std::string token, token_file;  // that workers must show; "": none is asked for
  std::string tls_cert, tls_key, tls_ca;
  Duration worker_wait = std::chrono::seconds(60);
  Duration dead_after = std::chrono::seconds(1);
  Duration link_dead_after = std::chrono::milliseconds(1500);
  Duration heartbeat = std::chrono::milliseconds(50);
};

struct MasterOptions {
  ServeOptions front;  // and the defaults of the models
  ClusterOptions cluster;
  std::vector<ServeOptions> models;  // not empty after LoadMasterOptions
};

// The part of the list that `staffel serve` does not have.
OptionList ClusterOptionList(ClusterOptions* options);

// The list writes into `options`, which outlives it.
OptionList MasterOptionList(MasterOptions* options);

// Flags, environment and configuration file into `options`. Returns whether help was asked for.
Result<bool> LoadMasterOptions(MasterOptions* options, std::vector<std::string> args,
                               const char* const* environment);

}  // namespace staffel
