#include "app/serve_options.h"

#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "app/apis.h"
#include "app/master_options.h"
#include "app/model_text.h"
#include "app/worker_options.h"
#include "base/strings.h"

namespace staffel {
namespace {

constexpr int kTokensMax = 1 << 24;

Status CheckNotEmpty(std::string_view text) {
  if (text.empty()) return absl::InvalidArgumentError("is empty; give a value, or leave it out");
  return absl::OkStatus();
}

Status CheckBlockSize(int block_size) {
  if ((block_size & (block_size - 1)) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("--block-size is ", block_size, "; it must be a power of two, such as 16"));
}

Status CheckGrpc(const ServeOptions& options) {
  const bool tls = !options.grpc_tls_cert.empty() || !options.grpc_tls_key.empty() ||
                   !options.grpc_tls_ca.empty();
  if (options.grpc_port < 0 && (tls || !options.grpc_hosts.empty())) {
    return absl::InvalidArgumentError(
        "there are options of the gRPC API, but no --grpc-port, which switches it on");
  }
  if (tls && (options.grpc_tls_cert.empty() || options.grpc_tls_key.empty())) {
    return absl::InvalidArgumentError(
        "TLS of the gRPC port needs both --grpc-tls-cert and --grpc-tls-key");
  }
  if (options.grpc_port > 0 && options.grpc_port == options.port) {
    return absl::InvalidArgumentError(
        StrCat("--grpc-port and --port are both ", options.port, "; give them different ports"));
  }
  return absl::OkStatus();
}

// One key a line; blank lines and lines that begin with '#' are passed over.
Status ReadKeyFile(const std::string& path, std::vector<std::string>* keys) {
  std::ifstream in(path);
  if (!in) {
    return absl::InvalidArgumentError(
        StrCat("--api-key-file: '", path, "' cannot be read; check its path and rights"));
  }
  const size_t before = keys->size();
  for (std::string line; std::getline(in, line);) {
    const std::string key(absl::StripAsciiWhitespace(line));
    if (!key.empty() && key[0] != '#') keys->push_back(key);
  }
  if (keys->size() == before) {
    return absl::InvalidArgumentError(
        StrCat("--api-key-file: '", path, "' holds no key; the server would be open to all"));
  }
  return absl::OkStatus();
}

void AddServerOptions(OptionList& list, ServeOptions* o) {
  constexpr Duration kZero = Duration::zero();
  const Duration day = std::chrono::hours(24);
  list.BeginGroup("Server");
  list.Texts("host", "ADDRESS", &o->hosts, "address or name to listen on; :: takes IPv4 and IPv6",
             CheckNotEmpty);
  list.Integer("port", "PORT", &o->port, 0, 65535, "port to listen on; 0: any free one");
  list.Text("unix-socket", "PATH", &o->unix_socket, "also listen on this local socket");
  list.Integer("grpc-port", "PORT", &o->grpc_port, -1, 65535,
               "port of the gRPC API; 0: any free one; -1: none");
  list.Texts("grpc-host", "ADDRESS", &o->grpc_hosts,
             "address or name for it; default: those of --host", CheckNotEmpty);
  list.Text("grpc-tls-cert", "FILE", &o->grpc_tls_cert, "certificate of the gRPC port, PEM");
  list.Text("grpc-tls-key", "FILE", &o->grpc_tls_key, "its key, PEM");
  list.Text("grpc-tls-ca", "FILE", &o->grpc_tls_ca,
            "with it, gRPC clients must show a certificate that this one has signed (mTLS)");
  list.Texts("api-key", "KEY", &o->api_keys, "key that clients must send as bearer token",
             CheckNotEmpty);
  list.Text("api-key-file", "FILE", &o->api_key_file,
            "file with such keys, one a line; keeps them out of the process list");
  list.Switch("open-metrics", &o->open_metrics, "/metrics needs no key");
  list.Texts("cors-allow-origin", "ORIGIN", &o->cors_origins,
             "web origin whose pages may call the server, or *", CheckNotEmpty);
  list.Texts("api", "NAME", &o->apis,
             StrCat("an API to serve, of ", ApiNames(), "; all if none is named"), CheckApi);
  list.Bytes("max-body-bytes", &o->body_bytes_max, 1 << 10, int64_t{1} << 31,
             "largest request body or gRPC message; above: 413, RESOURCE_EXHAUSTED");
  list.Bytes("client-buffer-bytes", &o->client_buffer_bytes, 64 << 10, int64_t{1} << 31,
             "unsent bytes of one stream after which its slow client is dropped");
  list.Time("sse-ping-interval", &o->sse_ping_interval, kZero, day,
            "silence of a stream after which a comment keeps it alive", "never");
  list.Time("write-timeout", &o->write_timeout, std::chrono::seconds(1), day,
            "a client that takes no bytes for this long is dropped");
  list.Time("drain-timeout", &o->drain_timeout, kZero, day,
            "time that running requests get after SIGTERM");
  list.Time("stall-timeout", &o->stall_timeout, std::chrono::seconds(1), day,
            "time without a finished step, while work waits, after which /health answers 503");
  list.Integer("http-threads", "N", &o->http_threads, 1, 64,
               "threads for JSON, chat templates and tokenizing; one more serves running streams");
}

void AddModelOptions(OptionList& list, ServeOptions* o) {
  list.BeginGroup("Model");
  list.Text("model", "FILE", &o->model,
            "GGUF file, or the first part of a split one; also the bare argument", CheckNotEmpty);
  list.Texts("served-model-name", "NAME", &o->served_model_names,
             "name for requests and /v1/models; default: the file's name", CheckNotEmpty);
  list.Text("chat-template", "FILE", &o->chat_template,
            "Jinja chat template in place of the model's own");
  list.Switch("trust-request-chat-template", &o->trust_request_chat_template,
              "a request's chat_template is used in place of the model's; it may write control "
              "tokens, and take seconds of a thread");
  list.Text(
      "tool-call-format", "NAME", &o->tool_call_format,
      "how the model writes calls of tools: auto (as its template has it), none, json, hermes, "
      "qwen-xml, llama, mistral, mistral-args, deepseek, deepseek-v3.1, gemma, granite, harmony",
      CheckCallFormat);
  list.Text("reasoning-format", "NAME", &o->reasoning_format,
            "how the model writes reasoning: auto (as its template has it), none, think, granite, "
            "mistral, harmony",
            CheckReasoningFormat);
  list.Choice("pooling", &o->pooling, {"auto", "last", "mean"},
              "what of a text's hidden states is its embedding: that of the last token, or the "
              "mean; auto: as the model file says, else last");
  list.Integer("max-model-len", "TOKENS", &o->max_model_len, 0, kTokensMax,
               "longest prompt plus answer", "what the model was trained for");
  list.Choice("device", &o->device, {"cpu"}, "what computes");
  list.Integer("threads", "N", &o->threads, 0, 1024, "compute threads", "all usable cores");
  list.Choice("activations", &o->activations,
              {std::begin(kActivationTypeNames), std::end(kActivationTypeNames)},
              "precision of what is multiplied with the weights: int16 gives the f32 model's "
              "tokens, int8 is faster and coarser, f32 is slow, for comparing");
}

Status CheckLabel(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals != text.npos && equals > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("is \"", text, "\"; it must be KEY=VALUE, such as pool=chat"));
}

void AddLayoutOptions(OptionList& list, ServeOptions* o) {
  list.BeginGroup("Layout");
  list.Integer("tensor-parallel-size", "N", &o->tensor_parallel, 0, 1024,
               "workers that share each layer; any number that the heads can be cut for",
               "auto, by the workers there are");
  list.Alias("tp");
  list.Integer("pipeline-parallel-size", "N", &o->pipeline_parallel, 0, 1024,
               "stages, each with a range of the layers", "auto, by the workers there are");
  list.Alias("pp");
  list.Integer("data-parallel-size", "N", &o->data_parallel, 1, 1024,
               "replicas of the model, each on workers of its own");
  list.Alias("dp");
  list.Switch("allow-degraded", &o->allow_degraded,
              "when a worker is lost, the others may go on in another layout until it is back");
  list.Texts("worker-label", "KEY=VALUE", &o->worker_labels,
             "label that a worker must have to serve this model", CheckLabel);
}

void AddSchedulerOptions(OptionList& list, ServeOptions* o) {
  list.BeginGroup("Scheduler and KV cache");
  list.Integer("max-num-seqs", "N", &o->max_num_seqs, 1, 4096, "sequences that run together");
  list.Integer("max-num-batched-tokens", "TOKENS", &o->max_num_batched_tokens, 1, 1 << 16,
               "tokens computed in one step");
  list.Integer("prefill-chunk", "TOKENS", &o->prefill_chunk, 0, 1 << 16,
               "most prompt tokens of one sequence in a step", "max-num-batched-tokens");
  list.Integer("max-queue", "N", &o->max_queue, 1, 1 << 20, "sequences that may wait; above: 429");
  list.Integer("block-size", "TOKENS", &o->block_size, 1, 256,
               "tokens of a KV block, a power of two");
  list.Switch("enable-prefix-caching", &o->enable_prefix_caching,
              "reuse the KV of prompts that begin alike");
  list.Integer("kv-blocks", "N", &o->kv_blocks, 0, 1 << 30, "KV blocks of the pool",
               "as many as memory allows");
  list.Bytes("kv-memory", &o->kv_memory, 0, int64_t{1} << 50, "memory of the KV pool",
             "chosen by free memory");
}

void AddLogOptions(OptionList& list, ServeOptions* o) {
  list.BeginGroup("Configuration and logs");
  list.Text("config", "FILE", &o->config, "YAML file with options by their keys");
  list.Choice("log-level", &o->log_level, {"trace", "debug", "info", "warning", "error", "off"},
              "least important messages shown");
  list.Choice("log-format", &o->log_format, {"text", "json"}, "log lines on stderr");
}

}  // namespace

OptionList ServeOptionList(ServeOptions* options) {
  OptionList list;
  AddModelOptions(list, options);
  AddLayoutOptions(list, options);
  AddServerOptions(list, options);
  AddSchedulerOptions(list, options);
  AddLogOptions(list, options);
  return list;
}

OptionList ModelOptionList(ServeOptions* options) {
  OptionList list;
  AddModelOptions(list, options);
  AddLayoutOptions(list, options);
  AddSchedulerOptions(list, options);
  return list;
}

ModelTextOptions TextOptionsOf(const ServeOptions& options) {
  std::optional<Pooling> pooling;
  if (options.pooling == PoolingOption::kLast) pooling = Pooling::kLast;
  if (options.pooling == PoolingOption::kMean) pooling = Pooling::kMean;
  return {options.chat_template, options.tool_call_format, options.reasoning_format, pooling};
}

Status FinishModelOptions(const ServeOptions& options) {
  const auto invalid = [](auto&&... parts) { return absl::InvalidArgumentError(StrCat(parts...)); };
  STAFFEL_RETURN_IF_ERROR(CheckBlockSize(options.block_size));
  if (options.prefill_chunk > options.max_num_batched_tokens) {
    return invalid("--prefill-chunk is ", options.prefill_chunk,
                   "; it must not be above --max-num-batched-tokens (",
                   options.max_num_batched_tokens, ")");
  }
  // What the scheduler needs: a token of every sequence, and something left for prompts.
  constexpr int kPrefillReserve = 16;
  if (options.max_num_batched_tokens < options.max_num_seqs + kPrefillReserve) {
    return invalid("--max-num-batched-tokens is ", options.max_num_batched_tokens,
                   "; it must be at least --max-num-seqs (", options.max_num_seqs, ") and ",
                   kPrefillReserve, " more");
  }
  if (options.kv_blocks > 0 && options.kv_memory > 0) {
    return invalid(
        "--kv-blocks and --kv-memory both set the size of the KV pool; give one of them");
  }
  return absl::OkStatus();
}

Status FinishServeOptions(ServeOptions* options) {
  if (options->model.empty()) {
    return absl::InvalidArgumentError(
        "no model is given; name a GGUF file: staffel serve model.gguf");
  }
  STAFFEL_RETURN_IF_ERROR(FinishModelOptions(*options));
  STAFFEL_RETURN_IF_ERROR(CheckGrpc(*options));
  if (!options->api_key_file.empty()) {
    STAFFEL_RETURN_IF_ERROR(ReadKeyFile(options->api_key_file, &options->api_keys));
  }
  return absl::OkStatus();
}

std::string ConfigurationMarkdown() {
  ServeOptions options;
  ClusterOptions cluster;
  WorkerOptions worker;
  return StrCat(
      "# Configuration\n\n"
      "<!-- Made by `staffel options --markdown`; a test compares the two. -->\n\n"
      "Every option of `staffel serve` can be given as a flag, as an environment variable, or as a "
      "key of a YAML file\n(`--config FILE`). A flag wins over a variable, a variable over the "
      "file, "
      "the file over the default. An unknown\nname or a value that cannot be read ends the program "
      "with exit code 2 and a message that names the place.\n\n"
      "- Bytes: `4194304`, `512M`, `1.5GiB`; K, M, G, T count in 1024s, KB, MB, GB, TB in 1000s.\n"
      "- Times: `15` or `15s`, `500ms`, `2m`, `1h`.\n"
      "- Switches: `--name`, `--no-name`, `--name=false`; `true` or `false` in variables and the "
      "file.\n"
      "- Repeatable flags add up; in the file they take a list. A stronger source replaces the "
      "whole "
      "list.\n"
      "- Variables that Kubernetes makes for a service called `staffel` (`STAFFEL_SERVICE_HOST`, "
      "`STAFFEL_PORT=tcp://…`) are\n  passed over.\n",
      ServeOptionList(&options).Markdown(),
      "\n# Options of `staffel master`\n\nThose of `staffel serve`, but `--tp` and `--pp` are 0 "
      "(chosen by the workers there are) if not given, and:\n",
      ClusterOptionList(&cluster).Markdown(),
      "\n`models` in the file is a list of models, each "
      "with its own options of the groups Model, Layout, Scheduler and KV cache\n"
      "([cluster.md](cluster.md)).\n\n# Options of `staffel worker`\n\nGiven in the same ways.\n",
      WorkerOptionList(&worker).Markdown());
}

}  // namespace staffel
