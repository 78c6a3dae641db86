#include "server/metrics.h"

#include <mutex>
#include <utility>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace staffel {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::map<std::string, std::string>;
using Bounds = prometheus::Histogram::BucketBoundaries;

// vLLM's bounds (v1/metrics/loggers.py), so that its dashboards fit.
const Bounds kFirstTokenBounds = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                  1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const Bounds kInterTokenBounds = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                  .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const Bounds kRequestBounds = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                               30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Bounds kTokenCountBounds = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                                  1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

constexpr const char* kFinishReasons[] = {"stop", "length", "abort", "error"};

double KvUsage(const EngineStats& stats) {
  if (stats.blocks_total == 0) return 0;
  int held = stats.blocks_total - stats.blocks_free - stats.blocks_cached;
  return static_cast<double>(held) / stats.blocks_total;
}

// The series that are computed from EngineStats at scrape time.
struct EngineSeries {
  const char* name;
  const char* help;
  MetricType type;
  double (*value)(const EngineStats&);
};

#define STAFFEL_FIELD(field) [](const EngineStats& s) { return static_cast<double>(s.field); }
const EngineSeries kEngineSeries[] = {
    {"staffel_num_requests_running", "Sequences that the engine computes.", MetricType::Gauge,
     STAFFEL_FIELD(running)},
    {"staffel_num_requests_waiting", "Sequences that wait to be computed.", MetricType::Gauge,
     STAFFEL_FIELD(waiting)},
    {"staffel_kv_cache_usage_ratio",
     "Share of the KV blocks that sequences hold (reusable cached blocks are not held).",
     MetricType::Gauge, KvUsage},
    {"staffel_kv_blocks", "KV blocks of the pool.", MetricType::Gauge, STAFFEL_FIELD(blocks_total)},
    {"staffel_kv_blocks_cached", "KV blocks held by no sequence that a prefix may reuse.",
     MetricType::Gauge, STAFFEL_FIELD(blocks_cached)},
    {"staffel_num_preemptions_total", "Sequences that lost their KV blocks and were recomputed.",
     MetricType::Counter, STAFFEL_FIELD(preemptions)},
    {"staffel_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
     MetricType::Counter, STAFFEL_FIELD(prefix_queries_tokens)},
    {"staffel_prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
     MetricType::Counter, STAFFEL_FIELD(prefix_hits_tokens)},
    {"staffel_prompt_tokens_total", "Prompt tokens of admitted requests.", MetricType::Counter,
     STAFFEL_FIELD(prompt_tokens)},
    {"staffel_generation_tokens_total", "Tokens generated.", MetricType::Counter,
     STAFFEL_FIELD(generation_tokens)},
    {"staffel_forced_tokens_total",
     "Generated tokens that a grammar left no choice for: known without a step of their own.",
     MetricType::Counter, STAFFEL_FIELD(forced_tokens)},
    {"staffel_engine_steps_total", "Steps of the engine.", MetricType::Counter,
     STAFFEL_FIELD(steps)},
    {"staffel_engine_last_step_age_seconds",
     "Time since the last step ended while work is waiting; 0 when idle.", MetricType::Gauge,
     STAFFEL_FIELD(last_step_age_s)},
    {"staffel_engine_compute_seconds_total", "Time that steps took in the workers.",
     MetricType::Counter, STAFFEL_FIELD(compute_s)},
    {"staffel_engine_wait_seconds_total", "Idle time of the workers between steps.",
     MetricType::Counter, STAFFEL_FIELD(wait_s)},
    {"staffel_engine_plan_seconds_total", "Time that the scheduler took to plan steps.",
     MetricType::Counter, STAFFEL_FIELD(plan_s)},
    {"staffel_engine_steps_in_flight", "Steps sent whose outcome has not come.", MetricType::Gauge,
     STAFFEL_FIELD(steps_in_flight)},
    {"staffel_engine_epoch", "Rises with each change of the workers.", MetricType::Gauge,
     STAFFEL_FIELD(epoch)},
    {"staffel_engine_losses_total", "Losses of workers, each of which ended an epoch.",
     MetricType::Counter, STAFFEL_FIELD(losses)},
    {"staffel_engine_resumes_total", "Epochs begun after a loss or a change of the workers.",
     MetricType::Counter, STAFFEL_FIELD(resumes)},
    {"staffel_engine_paused_seconds_total", "Time without workers.", MetricType::Counter,
     STAFFEL_FIELD(paused_s)},
};
#undef STAFFEL_FIELD

ClientMetric Sample(MetricType type, double value, const Labels& labels) {
  ClientMetric metric;
  for (const auto& [name, text] : labels) metric.label.push_back({name, text});
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return metric;
}

MetricFamily Single(const char* name, const char* help, double value, const Labels& labels = {}) {
  return {name, help, MetricType::Gauge, {Sample(MetricType::Gauge, value, labels)}};
}

class ModelSeries final : public ModelMetrics {
 public:
  ModelSeries(std::string model_name, std::function<EngineStats()> stats,
              prometheus::Registry& registry)
      : labels_{{"model_name", std::move(model_name)}}, stats_(std::move(stats)) {
    auto histogram = [&](const char* name, const char* help, const Bounds& bounds) {
      return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels_,
                                                                                        bounds);
    };
    first_token_ =
        histogram("staffel_time_to_first_token_seconds",
                  "From the arrival of a request to its first token.", kFirstTokenBounds);
    inter_token_ = histogram("staffel_inter_token_latency_seconds",
                             "Between two tokens of a sequence.", kInterTokenBounds);
    e2e_ = histogram("staffel_e2e_request_latency_seconds",
                     "From the arrival of a request to its last token.", kRequestBounds);
    prompt_tokens_ = histogram("staffel_request_prompt_tokens", "Prompt tokens of a request.",
                               kTokenCountBounds);
    generation_tokens_ = histogram("staffel_request_generation_tokens",
                                   "Tokens generated for a request.", kTokenCountBounds);
    auto& finished = prometheus::BuildCounter()
                         .Name("staffel_request_success_total")
                         .Help("Requests that ended, by finish reason.")
                         .Register(registry);
    for (const char* reason : kFinishReasons) {
      Labels labels = labels_;
      labels["finished_reason"] = reason;
      finished_.emplace_back(reason, &finished.Add(labels));
    }
  }

  void ObserveTimeToFirstToken(double seconds) override { first_token_->Observe(seconds); }
  void ObserveInterTokenLatency(double seconds) override { inter_token_->Observe(seconds); }
  void ObserveFinished(std::string_view finish_reason, double e2e_seconds, int prompt_tokens,
                       int generation_tokens) override {
    e2e_->Observe(e2e_seconds);
    prompt_tokens_->Observe(prompt_tokens);
    generation_tokens_->Observe(generation_tokens);
    for (auto& [reason, counter] : finished_) {
      if (reason == finish_reason) counter->Increment();
    }
  }

  const Labels& labels() const { return labels_; }
  EngineStats stats() const { return stats_(); }

 private:
  const Labels labels_;
  const std::function<EngineStats()> stats_;
  prometheus::Histogram *first_token_, *inter_token_, *e2e_, *prompt_tokens_, *generation_tokens_;
  std::vector<std::pair<std::string_view, prometheus::Counter*>> finished_;
};

}  // namespace

struct Metrics::Impl {
  std::string version;
  prometheus::Registry registry{prometheus::Registry::InsertBehavior::Merge};
  prometheus::Family<prometheus::Counter>* http_requests = nullptr;
  prometheus::Family<prometheus::Counter>* grpc_calls = nullptr;
  mutable std::mutex mutex;
  std::vector<std::unique_ptr<ModelSeries>> models;                  // guarded by mutex
  std::function<int()> connections;                                  // guarded by mutex
  std::vector<std::function<std::vector<MetricSamples>()>> sources;  // guarded by mutex
};

Metrics::Metrics(std::string_view version) : impl_(std::make_unique<Impl>()) {
  impl_->version = version;
  impl_->http_requests = &prometheus::BuildCounter()
                              .Name("staffel_http_requests_total")
                              .Help(
                                  "HTTP answers by method, route and status; 499: the client "
                                  "went away before it had one.")
                              .Register(impl_->registry);
  impl_->grpc_calls = &prometheus::BuildCounter()
                           .Name("staffel_grpc_calls_total")
                           .Help("gRPC calls that have ended, by method and status code.")
                           .Register(impl_->registry);
}

Metrics::~Metrics() = default;

ModelMetrics* Metrics::AddModel(std::string model_name, std::function<EngineStats()> stats) {
  auto series =
      std::make_unique<ModelSeries>(std::move(model_name), std::move(stats), impl_->registry);
  std::lock_guard lock(impl_->mutex);
  return impl_->models.emplace_back(std::move(series)).get();
}

void Metrics::CountHttpRequest(std::string_view method, std::string_view route, int status) {
  impl_->http_requests
      ->Add({{"method", std::string(method)},
             {"route", std::string(route)},
             {"status", std::to_string(status)}})
      .Increment();
}

void Metrics::CountGrpcCall(std::string_view method, std::string_view code) {
  impl_->grpc_calls->Add({{"method", std::string(method)}, {"code", std::string(code)}})
      .Increment();
}

void Metrics::SetOpenConnections(std::function<int()> count) {
  std::lock_guard lock(impl_->mutex);
  impl_->connections = std::move(count);
}

void Metrics::AddSource(std::function<std::vector<MetricSamples>()> source) {
  std::lock_guard lock(impl_->mutex);
  impl_->sources.push_back(std::move(source));
}

std::string Metrics::Render() const {
  std::vector<MetricFamily> families = {
      Single("staffel_build_info", "Version of this server.", 1, {{"version", impl_->version}})};
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->connections) {
      families.push_back(Single("staffel_http_connections", "Open connections of HTTP clients.",
                                impl_->connections()));
    }
    std::vector<std::pair<const ModelSeries*, EngineStats>> stats;
    for (const auto& model : impl_->models) stats.emplace_back(model.get(), model->stats());
    for (const EngineSeries& series : kEngineSeries) {
      if (stats.empty()) break;
      MetricFamily family{series.name, series.help, series.type, {}};
      for (const auto& [model, s] : stats) {
        family.metric.push_back(Sample(series.type, series.value(s), model->labels()));
      }
      families.push_back(std::move(family));
    }
    for (const auto& source : impl_->sources) {
      for (const MetricSamples& samples : source()) {
        const MetricType type = samples.counter ? MetricType::Counter : MetricType::Gauge;
        MetricFamily family{samples.name, samples.help, type, {}};
        for (const MetricSamples::Sample& sample : samples.samples) {
          family.metric.push_back(Sample(type, sample.value, sample.labels));
        }
        if (!family.metric.empty()) families.push_back(std::move(family));
      }
    }
  }
  for (MetricFamily& family : impl_->registry.Collect()) {
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace staffel
