// Random models that are held to calls: whatever they write, in every format, the parser reads back
// as calls whose arguments follow the schemas.
#include "server/api/call_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "answer/call_form.h"
#include "base/strings.h"
#include "grammar/grammar_cache.h"
#include "server/api/choice_decoder.h"
#include "tests/support/seed.h"
#include "tests/unit/grammar/validator.h"

namespace staffel::api {
namespace {

using answer::CallFormat;
using answer::ReasoningFormat;
using Rng = std::mt19937_64;

constexpr CallFormat kFormats[] = {
    CallFormat::kJson,    CallFormat::kHermes,      CallFormat::kQwenXml,  CallFormat::kLlama,
    CallFormat::kMistral, CallFormat::kMistralArgs, CallFormat::kDeepSeek, CallFormat::kDeepSeek31,
    CallFormat::kGemma,   CallFormat::kGranite,     CallFormat::kHarmony};

constexpr std::string_view kTools = R"([
  {"type":"function","function":{"name":"get_weather","strict":true,"parameters":{"type":"object",
    "properties":{"city":{"type":"string"},"unit":{"type":"string","enum":["C","F"]},
                  "days":{"type":"integer","minimum":1,"maximum":14}},
    "required":["city","days"],"additionalProperties":false}}},
  {"type":"function","function":{"name":"edit-file","strict":true,"parameters":{"type":"object",
    "properties":{"path":{"type":"string","pattern":"^[a-z/]{1,9}$"},
                  "lines":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":3},
                  "mode":{"anyOf":[{"type":"string","maxLength":4},{"type":"null"},{"type":"number"}]},
                  "at":{"$ref":"#/$defs/at"}},
    "required":["path","lines"],
    "$defs":{"at":{"type":"object","properties":{"row":{"type":"integer"}},"required":["row"]}}}}},
  {"type":"function","function":{"name":"now","strict":true}}])";

// Bytes, pieces, markers; the last token ends answers. Markers are control tokens or text.
class MarkerTokenizer final : public Tokenizer {
 public:
  MarkerTokenizer(std::vector<std::string> markers, bool control) {
    for (int b = 0; b < 256; ++b) bytes_.emplace_back(1, static_cast<char>(b));
    for (const char* piece : {"\":", "\",", "\"}", "}}", "]}", "true", "null", "\n", "\n\n", "é",
                              "12", ", \"", ": ", "{\"name\": \"", "</", "```", " <"})
      bytes_.emplace_back(piece);
    first_marker_ = static_cast<TokenId>(bytes_.size());
    control_ = control;
    for (std::string& marker : markers) bytes_.push_back(std::move(marker));
    end_ = {static_cast<TokenId>(bytes_.size())};
    bytes_.emplace_back("<end>");
  }
  std::vector<TokenId> Encode(const PromptText&, bool) const override { return {}; }
  std::vector<TokenId> Encode(std::string_view text, bool, bool) const override {
    const auto found = std::find(bytes_.begin() + first_marker_, bytes_.end(), text);
    if (found == bytes_.end()) return {0, 1};
    return {static_cast<TokenId>(found - bytes_.begin())};
  }
  std::string_view TokenBytes(TokenId token, bool special) const override {
    return IsControl(token) && !special ? std::string_view() : bytes_[token];
  }
  std::string Decode(absl::Span<const TokenId> tokens, bool special) const override {
    std::string out;
    for (TokenId token : tokens) out += TokenBytes(token, special);
    return out;
  }
  bool IsControl(TokenId token) const override {
    return token == end_[0] || (control_ && token >= first_marker_);
  }
  int vocab_size() const override { return static_cast<int>(bytes_.size()); }
  const TokenizerSpec& spec() const override { return spec_; }
  absl::Span<const TokenId> end_tokens() const override { return end_; }
  bool IsMarker(TokenId token) const { return token >= first_marker_ && token != end_[0]; }

 private:
  std::vector<std::string> bytes_;
  TokenId first_marker_ = 0;
  bool control_ = false;
  std::vector<TokenId> end_;
  TokenizerSpec spec_;
};

struct World {
  answer::ParserOptions parser;
  ToolChoice choice;
  bool control = false;
  std::string name;

  std::vector<std::string> Markers() const {
    std::set<std::string> names;
    for (std::string_view marker : answer::Markers(parser.formats)) names.emplace(marker);
    return {names.begin(), names.end()};
  }
};

// One random answer. Nothing: it did not end.
std::optional<Piece> Walk(const World& world, const MarkerTokenizer& tokenizer,
                          grammar::SequenceGrammar& grammar, Rng& rng, std::string* text) {
  ChoiceDecoder decoder(tokenizer, {}, {tokenizer.end_tokens()[0]}, false, true);
  answer::ParserOptions options = world.parser;
  decoder.Parse(answer::MakeParser(options), answer::Markers(options.formats),
                {.single_call = !world.choice.parallel});
  const int patience = static_cast<int>(rng() % 80);
  for (int step = 0; step < 900; ++step) {
    const auto mask = grammar.Mask();
    std::vector<TokenId> allowed, markers, closers;
    for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
      if ((mask->words[token / 32] >> (token % 32) & 1) == 0) continue;
      allowed.push_back(token);
      const std::string_view bytes = tokenizer.TokenBytes(token, true);
      if (tokenizer.IsMarker(token) || bytes == "{") markers.push_back(token);
      if (bytes == "<end>" || bytes == "\"" || bytes == "}" || bytes == "]" || bytes == "\n")
        closers.push_back(token);
    }
    if (allowed.empty()) {
      ADD_FAILURE() << world.name << ": nothing may follow " << *text;
      return std::nullopt;
    }
    TokenId token = allowed[rng() % allowed.size()];
    if (!markers.empty() && rng() % 4 == 0) token = markers[rng() % markers.size()];
    if (step > patience && rng() % 8 != 0) {
      if (!closers.empty())
        token = closers[rng() % closers.size()];
      else if (!markers.empty())
        token = markers[rng() % markers.size()];
    }
    const Status appended = grammar.Append(token);
    EXPECT_TRUE(appended.ok()) << appended;
    *text += tokenizer.TokenBytes(token, true);
    SeqEvent event;
    event.tokens.push_back({token, 0, {}});
    if (token == tokenizer.end_tokens()[0]) event.finish = FinishReason::kStop;
    decoder.Apply(event);
    if (decoder.finished()) return decoder.Take();
  }
  return std::nullopt;
}

// Whether all calls of an answer are as they must be.
void ExpectValid(const World& world, const answer::Answer& answer, const std::string& text) {
  SCOPED_TRACE(world.name + ": " + text);
  for (const answer::Call& call : answer.calls) {
    const auto tool = std::find_if(world.choice.tools.begin(), world.choice.tools.end(),
                                   [&](const Json& t) { return ToolName(t) == call.name; });
    ASSERT_NE(tool, world.choice.tools.end()) << call.name;
    if (!world.choice.named.empty()) {
      EXPECT_EQ(call.name, world.choice.named);
    }
    const Json value = Json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
    ASSERT_FALSE(value.is_discarded()) << call.arguments;
    const Json schema = (*tool)["function"].value("parameters", Json{{"type", "object"}});
    EXPECT_TRUE(grammar::IsValid(value, schema, schema)) << call.arguments;
  }
  if (!world.choice.parallel) {
    EXPECT_LE(answer.calls.size(), 1u);
  }
  if (!world.choice.required) return;
  EXPECT_EQ(answer.content, "");
  EXPECT_GE(answer.calls.size(), 1u);
}

std::vector<World> Worlds(bool required) {
  std::vector<World> worlds;
  for (CallFormat format : kFormats) {
    for (int variant = 0; variant < 12; ++variant) {
      World world;
      // Nobody has harmony's markers as text.
      world.control = (variant & 1) != 0 || format == CallFormat::kHarmony;
      world.choice.tools = Json::parse(kTools);
      world.choice.required = required;
      world.choice.parallel = (variant & 2) == 0;
      if (required && variant == 3) world.choice.named = "edit-file";
      const int reasoning = variant / 4;  // none, may come, opened
      answer::ParserOptions& parser = world.parser;
      parser.formats.calls = format;
      parser.held_calls = true;
      parser.tools = SignaturesOf(world.choice.tools);
      if (reasoning > 0) {
        parser.formats.reasoning = format == CallFormat::kHarmony   ? ReasoningFormat::kHarmony
                                   : format == CallFormat::kMistral ? ReasoningFormat::kMistral
                                   : format == CallFormat::kGranite ? ReasoningFormat::kGranite
                                                                    : ReasoningFormat::kThink;
        parser.in_reasoning = reasoning == 2 && format != CallFormat::kHarmony;
      }
      world.name = StrCat(answer::Name(format), " ", variant);
      worlds.push_back(std::move(world));
    }
  }
  return worlds;
}

void WalkAll(bool required, int walks) {
  const uint64_t seed = TestSeed();
  Rng rng(seed);
  int ended = 0, reasoned = 0, walked = 0;
  std::map<CallFormat, int> calls;
  for (const World& world : Worlds(required)) {
    const MarkerTokenizer tokenizer(world.Markers(), world.control);
    auto spec = CallGrammar(world.choice, world.parser.formats.calls, tokenizer);
    ASSERT_TRUE(spec.ok()) << world.name << spec.status();
    AddBeginning(world.parser, tokenizer, &*spec);
    grammar::GrammarCache cache(*grammar::VocabularyOf(tokenizer));
    for (int i = 0; i < walks; ++i, ++walked) {
      auto sequence = cache.Begin(*spec);
      ASSERT_TRUE(sequence.ok()) << world.name << sequence.status();
      std::string text;
      const std::optional<Piece> piece = Walk(world, tokenizer, **sequence, rng, &text);
      if (!piece) continue;
      ++ended;
      answer::Answer answer;
      for (const answer::Delta& delta : piece->deltas) answer.Add(delta);
      ExpectValid(world, answer, text);
      calls[world.parser.formats.calls] += static_cast<int>(answer.calls.size());
      reasoned += !answer.reasoning.empty();
    }
  }
  std::cout << ended << " of " << walked << " answers ended, " << reasoned << " reasoned\n";
  for (CallFormat format : kFormats) {
    std::cout << answer::Name(format) << ": " << calls[format] << " calls\n";
    EXPECT_GT(calls[format], 0) << answer::Name(format);
  }
  EXPECT_GT(ended, walked * 6 / 10);
  EXPECT_GT(reasoned, walked / 10);
}

TEST(CallGrammar, DemandedCallsOfRandomModelsAreValid) { WalkAll(/*required=*/true, 12); }

TEST(CallGrammar, StrictCallsWithinTextOfRandomModelsAreValid) { WalkAll(/*required=*/false, 16); }

TEST(CallGrammar, RefusesWhatCannotBeWritten) {
  const MarkerTokenizer tokenizer({}, false);
  ToolChoice choice;
  choice.required = true;
  choice.tools = Json::parse(R"([{"type":"function","function":{"name":"a b"}}])");
  for (CallFormat format : kFormats) {
    EXPECT_EQ(CallGrammar(choice, format, tokenizer).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  choice.tools[0]["function"]["name"] = "a";
  EXPECT_TRUE(CallGrammar(choice, CallFormat::kHermes, tokenizer).ok());
  EXPECT_FALSE(CallGrammar(choice, CallFormat::kNone, tokenizer).ok());
}

}  // namespace
}  // namespace staffel::api
