// Encoding and streaming decoding with the real vocabularies. Counters: bytes per second, and
// tokens per second as items per second. Models: environment STAFFEL_MODELS (see tests/README.md).
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/text/models.h"
#include "text/decode_stream.h"
#include "text/stop_matcher.h"

namespace staffel {
namespace {

constexpr size_t kTextBytes = 1 << 20;

constexpr std::string_view kEnglish =
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the "
    "season "
    "of Light, it was the season of Darkness, it was the spring of hope, it was the winter of "
    "despair, we had everything before us, we had nothing before us, we were all going direct to "
    "Heaven, we were all going direct the other way. ";
constexpr std::string_view kCode =
    "template <class Visitor>\nvoid ForEachEntry(const Table& table, Visitor&& visit) {\n"
    "  for (size_t i = 0; i < table.size(); i++) {\n    if (table[i].key == nullptr) continue;\n"
    "    visit(*table[i].key, table[i].value, /*index=*/i);  // 0x1F: see above\n  }\n}\n\n";
constexpr std::string_view kChinese =
    "道可道，非常道。名可名，非常名。无名天地之始；有名万物之母。故常无欲，以观其妙；常有欲，"
    "以观其徼。此两者，同出而异名，同谓之玄。玄之又玄，众妙之门。天下皆知美之为美，斯恶已。";

// Pieces of the sample between spaces (or three-byte characters) in random order, so that no text
// is a plain repetition.
std::string Shuffled(std::string_view sample) {
  const bool by_space = sample.find(' ') != std::string_view::npos;
  std::vector<std::string_view> pieces;
  while (!sample.empty()) {
    const size_t end = by_space ? std::min(sample.find(' '), sample.size() - 1) + 1 : 3;
    pieces.push_back(sample.substr(0, end));
    sample.remove_prefix(end);
  }
  std::mt19937_64 random(7);
  std::string text;
  while (text.size() < kTextBytes) text += pieces[random() % pieces.size()];
  return text;
}

std::string TextOf(std::string_view kind) {
  if (kind == "english") return Shuffled(kEnglish);
  if (kind == "code") return Shuffled(kCode);
  if (kind == "chinese") return Shuffled(kChinese);
  if (kind == "letter_run") return std::string(kTextBytes, 'a');
  if (kind == "space_run") return std::string(kTextBytes, ' ') + "x";
  std::mt19937_64 random(7);
  std::string bytes;
  while (bytes.size() < kTextBytes) bytes.push_back(static_cast<char>(random()));
  return bytes;
}

void Encode(benchmark::State& state, const std::string& model, const std::string& kind) {
  const Tokenizer* tokenizer = ModelTokenizer(model);
  if (tokenizer == nullptr) {
    state.SkipWithError("model is missing");
    return;
  }
  const std::string text = TextOf(kind);
  size_t tokens = 0;
  for (auto _ : state) tokens += tokenizer->Encode(text, true, false).size();
  state.SetItemsProcessed(static_cast<int64_t>(tokens));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void Stream(benchmark::State& state, const std::string& model) {
  const Tokenizer* tokenizer = ModelTokenizer(model);
  if (tokenizer == nullptr) {
    state.SkipWithError("model is missing");
    return;
  }
  const std::vector<TokenId> tokens = tokenizer->Encode(TextOf("english"), true, false);
  std::string piece, text;
  for (auto _ : state) {
    DecodeStream stream(*tokenizer);
    StopMatcher stops({"\n\nUser:", "</answer>", "worst of all"});
    text.clear();
    for (const TokenId token : tokens) {
      piece.clear();
      stream.Push(token, &piece);
      stops.Push(piece, &text);
    }
    benchmark::DoNotOptimize(text.data());
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * tokens.size()));
}

void Load(benchmark::State& state, const std::string& model) {
  const Result<TokenizerSpec> spec = ModelTokenizerSpec(model);
  if (!spec.ok()) {
    state.SkipWithError("model is missing");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(MakeTokenizer(*spec));
}

}  // namespace
}  // namespace staffel

int main(int argc, char** argv) {
  using namespace staffel;
  const std::pair<const char*, const char*> models[] = {
      {"smollm2", kSmolLm2}, {"qwen2.5", kQwen25}, {"gemma3", kGemma3}};
  for (const auto& [name, file] : models) {
    const std::string model = file;
    for (const char* kind :
         {"english", "code", "chinese", "letter_run", "space_run", "random_bytes"}) {
      benchmark::RegisterBenchmark((std::string("encode/") + name + "/" + kind).c_str(),
                                   [=](benchmark::State& state) { Encode(state, model, kind); })
          ->Unit(benchmark::kMillisecond);
    }
    benchmark::RegisterBenchmark((std::string("stream/") + name).c_str(),
                                 [=](benchmark::State& state) { Stream(state, model); })
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark((std::string("load/") + name).c_str(),
                                 [=](benchmark::State& state) { Load(state, model); })
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
