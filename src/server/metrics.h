// What /metrics shows, in the Prometheus text format 0.0.4. Names mirror vLLM's with the prefix
// staffel_. Counts that the engine keeps are read from EngineStats at scrape time; latencies and
// finish reasons are fed by the routes. All calls from any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "staffel/request.h"

namespace staffel {

// Of one served model; every series carries model_name.
class ModelMetrics {
 public:
  virtual ~ModelMetrics() = default;
  // From the arrival of a request to the first token of a sequence.
  virtual void ObserveTimeToFirstToken(double seconds) = 0;
  // Between two tokens of a sequence. With several tokens in one event: the time over their count.
  virtual void ObserveInterTokenLatency(double seconds) = 0;
  // Once for each request that reached the engine. finish_reason: "stop", "length", "abort" (the
  // client went away or the server drained) or "error".
  virtual void ObserveFinished(std::string_view finish_reason, double e2e_seconds,
                               int prompt_tokens, int generation_tokens) = 0;
};

// One family of values that its owner reads at scrape time.
struct MetricSamples {
  struct Sample {
    std::map<std::string, std::string> labels;
    double value = 0;
  };
  std::string name, help;
  bool counter = false;  // else a gauge
  std::vector<Sample> samples;
};

class Metrics {
 public:
  static constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

  // `version` is shown by staffel_build_info.
  explicit Metrics(std::string_view version);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // `stats` is called at every scrape; it must be quick and stay callable while this object lives.
  // The returned object lives as long as this one.
  ModelMetrics* AddModel(std::string model_name, std::function<EngineStats()> stats);

  // One HTTP answer. `route` is a registered path, or "other": never what a client made up.
  void CountHttpRequest(std::string_view method, std::string_view route, int status);
  // One gRPC call. `method` is a registered path, or "other"; `code`: "OK", "INVALID_ARGUMENT", ...
  void CountGrpcCall(std::string_view method, std::string_view code);
  // `count` is called at every scrape.
  void SetOpenConnections(std::function<int()> count);

  // `source` is called at every scrape; it must be quick and stay callable while this object lives.
  void AddSource(std::function<std::vector<MetricSamples>()> source);

  std::string Render() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace staffel
