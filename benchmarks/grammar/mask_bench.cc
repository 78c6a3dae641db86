// Masks of realistic schemas with real vocabularies: `bench_masks MODEL.gguf SCHEMAS.json`. For
// each schema a text that satisfies it is tokenized and followed; one line of JSON for each schema
// has the microseconds of every mask, with a fresh automaton (cold) and once more (warm), and of
// compiling.
#include <time.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "base/strings.h"
#include "grammar/grammar_cache.h"
#include "grammar/matcher.h"
#include "modelfile/open.h"
#include "nlohmann/json.hpp"
#include "text/tokenizer.h"

namespace staffel {
namespace {

// Processor time of this thread: the machine may have other work.
double Now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

double MicrosecondsSince(double begin) { return Now() - begin; }

// Masks before each token and at the end; [] when the grammar refuses the text.
std::vector<double> Follow(grammar::Matcher matcher, const std::vector<TokenId>& tokens,
                           absl::Span<grammar::MaskWord> mask) {
  std::vector<double> times;
  for (size_t i = 0; i <= tokens.size(); ++i) {
    const double begin = Now();
    matcher.FillMask(mask);
    times.push_back(MicrosecondsSince(begin));
    if (i < tokens.size() && !matcher.Accept(tokens[i]).ok()) return {};
  }
  return times;
}

Status Run(const std::string& model, const std::string& schemas) {
  STAFFEL_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFile> file, OpenModelFile(model));
  STAFFEL_ASSIGN_OR_RETURN(TokenizerSpec spec, file->ReadTokenizer());
  STAFFEL_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                           MakeTokenizer(std::move(spec)));
  double begin = Now();
  STAFFEL_ASSIGN_OR_RETURN(const std::shared_ptr<const grammar::Vocabulary> vocabulary,
                           grammar::VocabularyOf(*tokenizer));
  const double vocabulary_us = MicrosecondsSince(begin);
  std::vector<std::string> hex;  // of each token's bytes, for peers
  for (TokenId token = 0; token < vocabulary->size(); ++token) {
    std::string& text = hex.emplace_back();
    for (const char c : vocabulary->bytes(token)) {
      const uint8_t byte = static_cast<uint8_t>(c);
      StrAppend(text, "0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]);
    }
  }
  const auto ends = vocabulary->end_tokens();
  std::cout << nlohmann::json{{"vocabulary_us", vocabulary_us},
                              {"tokens", hex},
                              {"end_tokens", std::vector<TokenId>(ends.begin(), ends.end())}}
                   .dump()
            << "\n";
  std::ifstream in(schemas);
  std::vector<grammar::MaskWord> mask(vocabulary->mask_words());
  for (const auto& test : nlohmann::ordered_json::parse(in)) {
    grammar::GrammarSpec wanted;
    wanted.kind = grammar::GrammarSpec::Kind::kJsonSchema;
    wanted.source = test["schema"].dump();
    const std::vector<TokenId> tokens =
        tokenizer->Encode(test["text"].get<std::string>(), false, false);
    begin = Now();
    STAFFEL_ASSIGN_OR_RETURN(std::shared_ptr<const grammar::Grammar> compiled,
                             grammar::Compile(wanted));
    auto automaton = std::make_shared<grammar::Automaton>(std::move(compiled), vocabulary);
    const double compile_us = MicrosecondsSince(begin);
    const grammar::Matcher start(automaton);
    const std::vector<double> cold = Follow(start, tokens, absl::MakeSpan(mask));
    const std::vector<double> warm = Follow(start, tokens, absl::MakeSpan(mask));
    if (cold.empty()) {
      return absl::InternalError(
          StrCat("the text of \"", test["name"].get<std::string>(), "\" is refused"));
    }
    std::cout << nlohmann::ordered_json{{"name", test["name"]},
                                        {"compile_us", compile_us},
                                        {"cold_us", cold},
                                        {"warm_us", warm},
                                        {"tokens", tokens}}
                     .dump()
              << "\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace staffel

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: bench_masks MODEL.gguf SCHEMAS.json\n");
    return 2;
  }
  const staffel::Status status = staffel::Run(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
