#include "server/api/usage.h"

#include <chrono>

#include <nlohmann/json.hpp>

namespace staffel::api {
namespace {

double Ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

std::string TimingsJson(const Usage& usage) {
  const auto milliseconds = [](Duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  const auto computed = static_cast<double>(usage.prompt_tokens - usage.cached_tokens);
  const auto drawn = static_cast<double>(usage.completion_tokens);
  const double prompt_ms = milliseconds(usage.prompt_time);
  const double answer_ms = milliseconds(usage.answer_time);
  const nlohmann::ordered_json timings = {{"cache_n", usage.cached_tokens},
                                          {"prompt_n", usage.prompt_tokens - usage.cached_tokens},
                                          {"prompt_ms", prompt_ms},
                                          {"prompt_per_token_ms", Ratio(prompt_ms, computed)},
                                          {"prompt_per_second", Ratio(1000 * computed, prompt_ms)},
                                          {"predicted_n", usage.completion_tokens},
                                          {"predicted_ms", answer_ms},
                                          {"predicted_per_token_ms", Ratio(answer_ms, drawn)},
                                          {"predicted_per_second", Ratio(1000 * drawn, answer_ms)}};
  return timings.dump();
}

}  // namespace staffel::api
