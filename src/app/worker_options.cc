#include "app/worker_options.h"

#include <charconv>
#include <cstdlib>

#include "app/join_options.h"
#include "base/strings.h"

namespace staffel {
namespace {

Status CheckLabel(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals != text.npos && equals > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("is '", text, "'; write a label as key=value"));
}

Status CheckSpeed(std::string_view text) {
  double speed = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), speed);
  if (text.empty() ||
      (error == std::errc() && end == text.end() && speed >= 1e-3 && speed <= 1e6)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("is '", text, "'; it must be a number from 0.001 to 1000000"));
}

void AddConnectionOptions(OptionList& list, WorkerOptions* o) {
  list.BeginGroup("Worker");
  list.Text("master", "HOST:PORT", &o->master,
            "cluster port of the master; [ADDRESS]:PORT for IPv6, unix:PATH on one host");
  list.Text("name", "NAME", &o->name,
            "name of this worker, unlike all others; default: host and a "
            "number that --cache-dir keeps over restarts");
  list.Text("token", "TOKEN", &o->token, "secret that the master asks for");
  list.Text("token-file", "FILE", &o->token_file, "file with it; keeps it out of the process list");
  list.Text("tls-ca", "FILE", &o->tls_ca,
            "certificate that has signed the master's, PEM; with it, the connection is TLS");
  list.Text("tls-cert", "FILE", &o->tls_cert, "certificate that the master asks for (mTLS), PEM");
  list.Text("tls-key", "FILE", &o->tls_key, "its key, PEM");
  list.Text("interface", "NAME|ADDRESS", &o->interface,
            "network interface by which other workers reach this one; default: the one that leads "
            "to the master");
  list.Integer("data-port", "PORT", &o->data_port, 0, 65535,
               "port on which other workers reach this one", "any free one");
  list.Texts("label", "KEY=VALUE", &o->labels, "what a model may ask of its workers", CheckLabel);
  list.Time("drain-timeout", &o->drain_timeout, Duration::zero(), std::chrono::hours(24),
            "time for the master to do without this worker after SIGTERM");
}

void AddDeviceOptions(OptionList& list, WorkerOptions* o) {
  list.BeginGroup("Device and weights");
  list.Choice("device", &o->device, {"cpu"}, "what computes");
  list.Integer("threads", "N", &o->threads, 0, 1024, "compute threads", "all usable cores");
  list.Bytes("memory", &o->memory, 0, int64_t{1} << 50, "most memory for weights and KV",
             "what the system can give");
  list.Text("speed", "NUMBER", &o->speed,
            "speed beside other workers, for the sizes of their parts; default: measured",
            CheckSpeed);
  list.Text("model-dir", "FOLDER", &o->model_dir,
            "folder with model files, looked for by the name that the master's file has");
  list.Text("cache-dir", "FOLDER", &o->cache_dir,
            "where what was fetched from the master is kept; default: "
            "$XDG_CACHE_HOME/staffel/shards or ~/.cache/staffel/shards");
  list.Bytes("cache-limit", &o->cache_limit, 0, int64_t{1} << 50,
             "most disk for it; models that have not been used for longest make room", "no limit");
}

void AddLogOptions(OptionList& list, WorkerOptions* o) {
  list.BeginGroup("Configuration and logs");
  list.Text("config", "FILE", &o->config, "YAML file with options by their keys");
  list.Choice("log-level", &o->log_level, {"trace", "debug", "info", "warning", "error", "off"},
              "least important messages shown");
  list.Choice("log-format", &o->log_format, {"text", "json"}, "log lines on stderr");
}

std::string DefaultCacheDir() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/staffel/shards";
  }
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/staffel/shards";
}

// "::1:7100" means "[::1]:7100": the port always stands last.
std::string WithBrackets(const std::string& master) {
  const size_t port = master.rfind(':');
  const bool bare = !master.starts_with("unix") && master[0] != '[' && master.find(':') != port;
  return bare ? StrCat("[", master.substr(0, port), "]", master.substr(port)) : master;
}

}  // namespace

OptionList WorkerOptionList(WorkerOptions* options) {
  OptionList list;
  AddConnectionOptions(list, options);
  AddDeviceOptions(list, options);
  AddLogOptions(list, options);
  return list;
}

Status FinishWorkerOptions(WorkerOptions* options) {
  if (options->master.empty()) {
    return absl::InvalidArgumentError(
        "no master is given; name its cluster port: staffel worker --master HOST:PORT");
  }
  options->master = WithBrackets(options->master);
  STAFFEL_RETURN_IF_ERROR(ReadTokenFile(options->token_file, &options->token));
  if (options->tls_cert.empty() != options->tls_key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key go together; give both");
  }
  if (options->cache_dir.empty()) options->cache_dir = DefaultCacheDir();
  return absl::OkStatus();
}

std::map<std::string, std::string> ParsedLabels(const WorkerOptions& options) {
  return ParseLabels(options.labels);
}

}  // namespace staffel
