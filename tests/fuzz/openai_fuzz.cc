// A body of any bytes to any of the routes: one answer, of JSON, and what reaches the engine lies
// within its limits. The first byte chooses the route.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/api/generation_options.h"
#include "tests/unit/server/api/fakes.h"

namespace staffel::api::openai {
namespace {

constexpr std::string_view kTemplate =
    "{% for m in messages %}<|turn|>{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function | tojson }}{% endfor %}<|end|>{% endfor %}{{ tools | tojson if tools }}<|turn|>";

void CheckRequest(const GenerateRequest& request, const EngineLimits& limits) {
  STAFFEL_CHECK(!request.prompt.empty() && request.n > 0 && request.n <= kChoicesMax);
  STAFFEL_CHECK_LE(static_cast<int>(request.prompt.size()), limits.max_model_len);
  for (const TokenId token : request.prompt) {
    STAFFEL_CHECK(token >= 0 && token < limits.vocab_size);
  }
}

void CheckAnswer(const RecordingWriter& writer) {
  STAFFEL_CHECK_EQ(writer.answers, 1);
  for (const std::string& event : writer.events) {
    STAFFEL_CHECK(event == "[DONE]" || nlohmann::json::accept(event)) << event;
  }
  if (writer.streaming) return;
  STAFFEL_CHECK(nlohmann::json::accept(writer.body)) << writer.body;
  STAFFEL_CHECK(writer.status == 200 || (writer.status >= 400 && writer.status < 500))
      << writer.status << writer.body;
}

void Run(std::string_view input) {
  static constexpr const char* kRoutes[] = {"/v1/chat/completions",
                                            "/v1/completions",
                                            "/tokenize",
                                            "/detokenize",
                                            "/v1/chat/completions/render",
                                            "/v1/responses",
                                            "/v1/messages",
                                            "/v1/messages/count_tokens"};
  ApiWorld world(kTemplate);
  const size_t route = static_cast<uint8_t>(input[0] - '0') % std::size(kRoutes);
  const auto writer = world.Post(kRoutes[route], std::string(input.substr(1)));
  for (size_t i = 0; i < world.engine->requests.size(); ++i) {
    CheckRequest(world.engine->requests[i], world.engine->limits());
    const std::string_view text =
        world.engine->requests[i].max_tokens == 0 ? "" : "\xf0\x9f\x98 end";
    for (int choice = 0; choice < world.engine->requests[i].n; ++choice) {
      world.engine->Say(text.substr(0, 2), std::nullopt, static_cast<int>(i), choice);
      world.engine->Say(text.substr(std::min<size_t>(2, text.size())), FinishReason::kLength,
                        static_cast<int>(i), choice);
    }
  }
  CheckAnswer(*writer);
}

}  // namespace
}  // namespace staffel::api::openai

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) staffel::api::openai::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
