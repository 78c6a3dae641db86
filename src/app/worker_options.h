// What `staffel worker` can be told. The defaults stand here; names, ranges and help in
// WorkerOptionList.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/serve_options.h"
#include "base/log.h"
#include "base/options.h"
#include "staffel/clock.h"
#include "staffel/status.h"

namespace staffel {

struct WorkerOptions {
  std::string config;

  std::string master;
  std::string name;  // "": see WorkerName
  std::string token, token_file;
  std::string tls_cert, tls_key, tls_ca;
  std::string interface;
  int data_port = 0;
  std::vector<std::string> labels;  // key=value
  Duration drain_timeout = std::chrono::seconds(30);

  DeviceKind device = DeviceKind::kCpu;
  int threads = 0;
  int64_t memory = 0;
  std::string speed;  // a number; "": measured
  std::string model_dir, cache_dir;
  int64_t cache_limit = 0;

  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
};

// The list writes into `options`, which outlives it.
OptionList WorkerOptionList(WorkerOptions* options);

// Checks that need more than one option, reads the token file, fills in defaults that depend on the
// machine (cache folder). Errors name the flags.
Status FinishWorkerOptions(WorkerOptions* options);

std::map<std::string, std::string> ParsedLabels(const WorkerOptions& options);

}  // namespace staffel
