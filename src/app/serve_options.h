// What `staffel serve` can be told. The defaults stand here; names, ranges and help in
// ServeOptionList.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/options.h"
#include "staffel/backend.h"
#include "staffel/clock.h"
#include "staffel/status.h"

namespace staffel {

struct ModelTextOptions;

enum class DeviceKind : uint8_t { kCpu };

// What --pooling says.
enum class PoolingOption : uint8_t { kAuto, kLast, kMean };

struct ServeOptions {
  std::string model;
  std::string config;

  std::vector<std::string> hosts = {"0.0.0.0"};
  int port = 8000;
  std::string unix_socket;
  std::vector<std::string> grpc_hosts;  // empty: as `hosts`
  int grpc_port = -1;                   // -1: no gRPC
  std::string grpc_tls_cert, grpc_tls_key, grpc_tls_ca;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  bool open_metrics = true;
  std::vector<std::string> cors_origins;
  std::vector<std::string> apis;  // names as in apis.h; none: all
  int64_t body_bytes_max = 32 << 20;
  int64_t client_buffer_bytes = 2 << 20;
  Duration sse_ping_interval = std::chrono::seconds(15);
  Duration write_timeout = std::chrono::seconds(30);
  Duration drain_timeout = std::chrono::seconds(30);
  Duration stall_timeout = std::chrono::seconds(10);
  int http_threads = 2;

  std::vector<std::string> served_model_names;
  std::string chat_template;
  bool trust_request_chat_template = false;
  std::string tool_call_format = "auto", reasoning_format = "auto";
  PoolingOption pooling = PoolingOption::kAuto;
  int max_model_len = 0;
  DeviceKind device = DeviceKind::kCpu;
  int threads = 0;
  ActivationType activations = ActivationType::kInt16;

  // Sizes of the layout; 0: chosen by what there is.
  int tensor_parallel = 1, pipeline_parallel = 1, data_parallel = 1;
  bool allow_degraded = true;              // other layouts while workers are missing
  std::vector<std::string> worker_labels;  // key=value, that a worker of this model must have

  int max_num_seqs = 64;
  int max_num_batched_tokens = 512;
  int prefill_chunk = 0;
  int max_queue = 1024;
  int block_size = 16;
  bool enable_prefix_caching = true;
  int kv_blocks = 0;
  int64_t kv_memory = 0;

  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
};

// The list writes into `options`, which outlives it.
OptionList ServeOptionList(ServeOptions* options);

// The part of it that concerns one model, for the `models` of a master's configuration file.
OptionList ModelOptionList(ServeOptions* options);

ModelTextOptions TextOptionsOf(const ServeOptions& options);

// Checks that need more than one option, and reads the key file. Errors name the flags.
Status FinishServeOptions(ServeOptions* options);
// The part that concerns one model.
Status FinishModelOptions(const ServeOptions& options);

// docs/configuration.md.
std::string ConfigurationMarkdown();

}  // namespace staffel
