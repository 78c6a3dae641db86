#include "server/metrics.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace staffel {
namespace {

// Lines of one family, its HELP and TYPE included.
std::vector<std::string> Family(const std::string& text, const std::string& name) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.find(name) != std::string::npos) lines.push_back(line);
  }
  return lines;
}

TEST(Metrics, EngineSeriesAreReadAtScrapeTime) {
  Metrics metrics("1.2.3");
  EngineStats stats;
  metrics.AddModel("m", [&] { return stats; });
  EXPECT_EQ(Family(metrics.Render(), "staffel_kv_cache_usage_ratio").back(),
            "staffel_kv_cache_usage_ratio{model_name=\"m\"} 0");
  stats = {.running = 3, .waiting = 2, .blocks_total = 100, .blocks_free = 50, .blocks_cached = 25};
  stats.preemptions = 7;
  std::string text = metrics.Render();
  EXPECT_EQ(Family(text, "staffel_num_requests_running"),
            (std::vector<std::string>{
                "# HELP staffel_num_requests_running Sequences that the engine computes.",
                "# TYPE staffel_num_requests_running gauge",
                "staffel_num_requests_running{model_name=\"m\"} 3"}));
  // Reusable cached blocks are held by nobody.
  EXPECT_EQ(Family(text, "staffel_kv_cache_usage_ratio").back(),
            "staffel_kv_cache_usage_ratio{model_name=\"m\"} 0.25");
  EXPECT_EQ(Family(text, "staffel_num_preemptions_total").back(),
            "staffel_num_preemptions_total{model_name=\"m\"} 7");
  EXPECT_EQ(text.back(), '\n');
}

TEST(Metrics, OneFamilyForSeveralModelsAndEscapedNames) {
  Metrics metrics("1");
  auto stats = [] { return EngineStats{}; };
  metrics.AddModel("a\"b\\c\nd", stats);
  metrics.AddModel("other", stats)->ObserveTimeToFirstToken(.03);
  std::string text = metrics.Render();
  EXPECT_EQ(Family(text, "# TYPE staffel_num_requests_running").size(), 1u);
  EXPECT_EQ(Family(text, "# HELP staffel_time_to_first_token_seconds").size(), 1u);
  EXPECT_EQ(Family(text, "staffel_num_requests_running{").front(),
            "staffel_num_requests_running{model_name=\"a\\\"b\\\\c\\nd\"} 0");
  EXPECT_THAT(Family(text, "staffel_time_to_first_token_seconds_count"),
              testing::UnorderedElementsAre(
                  "staffel_time_to_first_token_seconds_count{model_name=\"a\\\"b\\\\c\\nd\"} 0",
                  "staffel_time_to_first_token_seconds_count{model_name=\"other\"} 1"));
}

TEST(Metrics, WhatRoutesFeed) {
  Metrics metrics("1");
  ModelMetrics* model = metrics.AddModel("m", [] { return EngineStats{}; });
  model->ObserveInterTokenLatency(.02);
  model->ObserveInterTokenLatency(100);
  model->ObserveFinished("stop", 1.5, 10, 20);
  model->ObserveFinished("length", .1, 10, 20);
  metrics.CountHttpRequest("POST", "/v1/completions", 200);
  metrics.CountHttpRequest("POST", "/v1/completions", 200);
  std::string text = metrics.Render();
  auto has = [&](const char* line) {
    return text.find(std::string(line) + "\n") != std::string::npos;
  };
  EXPECT_TRUE(has(R"(staffel_inter_token_latency_seconds_bucket{model_name="m",le="0.025"} 1)"))
      << text;
  EXPECT_TRUE(has(R"(staffel_inter_token_latency_seconds_bucket{model_name="m",le="+Inf"} 2)"));
  EXPECT_TRUE(has(R"(staffel_request_success_total{finished_reason="stop",model_name="m"} 1)"));
  EXPECT_TRUE(has(R"(staffel_request_success_total{finished_reason="abort",model_name="m"} 0)"));
  EXPECT_TRUE(has(R"(staffel_e2e_request_latency_seconds_count{model_name="m"} 2)"));
  EXPECT_TRUE(has(R"(staffel_request_generation_tokens_sum{model_name="m"} 40)"));
  EXPECT_TRUE(
      has(R"(staffel_http_requests_total{method="POST",route="/v1/completions",status="200"} 2)"));
}

}  // namespace
}  // namespace staffel
