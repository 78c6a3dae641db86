// Time to render a chat: what every request pays before its first token is planned.
#include <benchmark/benchmark.h>

#include <fstream>
#include <iterator>
#include <string>

#include "nlohmann/json.hpp"
#include "text/chat_template.h"

namespace staffel {
namespace {

using Json = nlohmann::ordered_json;

std::unique_ptr<ChatTemplate> Load(const std::string& name) {
  std::ifstream in(STAFFEL_TEMPLATES "/" + name + ".jinja", std::ios::binary);
  const std::string source(std::istreambuf_iterator<char>(in), {});
  auto chat = ChatTemplate::Parse(source, {"<s>", "</s>", "", ""});
  return chat.ok() ? *std::move(chat) : nullptr;
}

Json Chat(int messages, size_t bytes_each) {
  Json chat = Json::array({{{"role", "system"}, {"content", "Answer briefly."}}});
  for (int i = 0; i < messages; i++) {
    chat.push_back({{"role", i % 2 == 0 ? "user" : "assistant"},
                    {"content", std::string(bytes_each, static_cast<char>('a' + i % 26))}});
  }
  return chat;
}

void Run(benchmark::State& state, const std::string& name, const Json& messages) {
  const auto chat = Load(name);
  if (chat == nullptr) return state.SkipWithError("the template cannot be loaded");
  size_t bytes = 0;
  for (auto _ : state) {
    const auto prompt = chat->Render(messages, {});
    if (!prompt.ok()) return state.SkipWithError("the template fails");
    bytes += prompt->text.size();
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}

void TwentyMessages(benchmark::State& state, const char* name) { Run(state, name, Chat(20, 200)); }
void LongMessage(benchmark::State& state, const char* name) {
  Run(state, name, Chat(1, static_cast<size_t>(state.range(0))));
}

BENCHMARK_CAPTURE(TwentyMessages, chatml, "chatml");
BENCHMARK_CAPTURE(TwentyMessages, qwen3, "qwen3");
BENCHMARK_CAPTURE(TwentyMessages, llama3, "llama3");
BENCHMARK_CAPTURE(TwentyMessages, gpt_oss, "gpt_oss");
BENCHMARK_CAPTURE(LongMessage, chatml, "chatml")->Range(1 << 14, 1 << 20);
BENCHMARK_CAPTURE(LongMessage, qwen3, "qwen3")->Range(1 << 14, 1 << 20);
BENCHMARK_CAPTURE(LongMessage, llama3, "llama3")->Range(1 << 14, 1 << 20);

void ParseTemplate(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Load("gpt_oss"));
}
BENCHMARK(ParseTemplate);

}  // namespace
}  // namespace staffel

BENCHMARK_MAIN();
