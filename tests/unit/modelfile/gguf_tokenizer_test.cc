#include "modelfile/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "modelfile/gguf_file.h"
#include "tests/support/gguf_builder.h"

namespace staffel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;

Result<TokenizerSpec> Read(const GgufBuilder& builder) {
  const std::string file = builder.Build();
  auto model = ReadGguf({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "test.gguf");
  if (!model.ok()) return model.status();
  return (*model)->ReadTokenizer();
}

std::string Refusal(const GgufBuilder& builder) {
  const auto spec = Read(builder);
  return spec.ok() ? "ok" : std::string(spec.status().message());
}

GgufBuilder Bpe() {
  return GgufBuilder()
      .String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "smollm")
      .Strings("tokenizer.ggml.tokens", {"<end>", "a", "b", "ab"})
      .Strings("tokenizer.ggml.merges", {"a b"});
}

GgufBuilder SentencePiece() {
  return GgufBuilder()
      .String("tokenizer.ggml.model", "llama")
      .Strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a"})
      .Array<float>("tokenizer.ggml.scores", 6, {0, 0, 0, -1});
}

TEST(GgufTokenizer, EveryKeyIsRead) {
  const auto spec = Read(GgufBuilder()
                             .String("tokenizer.ggml.model", "llama")
                             .Strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>",
                                                                "\xe2\x96\x81"
                                                                "a",
                                                                "<0x00>"})
                             .Array<float>("tokenizer.ggml.scores", 6, {0, -1, -2, -3.5, -4})
                             .Array<int32_t>("tokenizer.ggml.token_type", 5, {2, 3, 3, 1, 6})
                             .U32("tokenizer.ggml.bos_token_id", 1)
                             .U32("tokenizer.ggml.eos_token_id", 2)
                             .U32("tokenizer.ggml.eot_token_id", 3)
                             .U64("tokenizer.ggml.eom_token_id", 4)
                             .U32("tokenizer.ggml.unknown_token_id", 0)
                             .U32("tokenizer.ggml.padding_token_id", 0xFFFFFFFF)
                             .U32("tokenizer.ggml.prefix_token_id", 1)
                             .U32("tokenizer.ggml.fim_pre_token_id", 2)
                             .U32("tokenizer.ggml.suffix_token_id", 3)
                             .U32("tokenizer.ggml.fim_mid_token_id", 4)
                             .U32("tokenizer.ggml.fim_sep_token_id", 0)
                             .Array<uint32_t>("tokenizer.ggml.eos_token_ids", 4, {2, 4, 2})
                             .Bool("tokenizer.ggml.add_bos_token", false)
                             .Bool("tokenizer.ggml.add_eos_token", true)
                             .Bool("tokenizer.ggml.add_space_prefix", false));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model, "llama");
  EXPECT_EQ(spec->tokens[3],
            "\xe2\x96\x81"
            "a");
  EXPECT_THAT(spec->scores, ElementsAre(0, -1, -2, -3.5, -4));
  EXPECT_THAT(spec->types, ElementsAre(TokenType::kUnknown, TokenType::kControl,
                                       TokenType::kControl, TokenType::kNormal, TokenType::kByte));
  EXPECT_EQ(spec->bos, 1);
  EXPECT_EQ(spec->eos, 2);
  EXPECT_EQ(spec->eot, 3);
  EXPECT_EQ(spec->eom, 4);
  EXPECT_EQ(spec->unknown, 0);
  EXPECT_EQ(spec->padding, -1);
  EXPECT_EQ(spec->fim_prefix, 2) << "the newer name wins";
  EXPECT_EQ(spec->fim_suffix, 3);
  EXPECT_EQ(spec->fim_middle, 4);
  EXPECT_EQ(spec->fim_separator, 0);
  EXPECT_EQ(spec->fim_padding, -1);
  EXPECT_THAT(spec->end_of_generation, ElementsAre(2, 4));
  EXPECT_FALSE(spec->add_bos);
  EXPECT_TRUE(spec->add_eos);
  EXPECT_FALSE(spec->add_space_prefix);
}

TEST(GgufTokenizer, DefaultsOfEachFamily) {
  const auto bpe = Read(Bpe());
  ASSERT_TRUE(bpe.ok()) << bpe.status();
  EXPECT_THAT(bpe->merges, ElementsAre("a b"));
  EXPECT_THAT(bpe->types, ::testing::Each(TokenType::kNormal));
  EXPECT_EQ(bpe->eos, -1);
  EXPECT_FALSE(bpe->add_bos);
  EXPECT_FALSE(bpe->add_space_prefix);
  EXPECT_EQ(bpe->bos, -1);
  EXPECT_EQ(bpe->unknown, -1);
  const auto llama = Read(SentencePiece());
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->unknown, 0);
  EXPECT_EQ(llama->bos, 1);
  EXPECT_EQ(llama->eos, 2);
  EXPECT_EQ(llama->padding, -1);
  EXPECT_TRUE(llama->add_bos);
  EXPECT_FALSE(llama->add_eos);
  EXPECT_TRUE(llama->add_space_prefix);
}

TEST(GgufTokenizer, WhatTheFileSaysWinsOverTheDefaults) {
  const auto other = Read(SentencePiece()
                              .U32("tokenizer.ggml.bos_token_id", 3)
                              .U32("tokenizer.ggml.eos_token_id", 1)
                              .U32("tokenizer.ggml.unknown_token_id", 2));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->bos, 3);
  EXPECT_EQ(other->eos, 1);
  EXPECT_EQ(other->unknown, 2);
  const auto none = Read(SentencePiece()
                             .U32("tokenizer.ggml.bos_token_id", 0xFFFFFFFF)
                             .U32("tokenizer.ggml.eos_token_id", 0xFFFFFFFF)
                             .U32("tokenizer.ggml.unknown_token_id", 0xFFFFFFFF));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->bos, -1);
  EXPECT_EQ(none->eos, -1);
  EXPECT_EQ(none->unknown, -1);
  EXPECT_FALSE(none->add_bos) << "there is none to add";
  const auto list = Read(SentencePiece().Array<int32_t>("tokenizer.ggml.eos_token_id", 5, {3}));
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->eos, 3);
}

TEST(GgufTokenizer, DefaultsStayInsideTheVocabulary) {
  const auto spec = Read(GgufBuilder()
                             .String("tokenizer.ggml.model", "llama")
                             .Strings("tokenizer.ggml.tokens", {"a"})
                             .Array<float>("tokenizer.ggml.scores", 6, {0}));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->unknown, 0);
  EXPECT_EQ(spec->bos, -1);
  EXPECT_EQ(spec->eos, -1);
  EXPECT_FALSE(spec->add_bos);
}

TEST(GgufTokenizer, WhetherBosIsAddedByDefaultDependsOnTheFamily) {
  const std::pair<const char*, bool> kFamilies[] = {
      {"llama-bpe", true}, {"llama3", true},       {"llama-v3", true}, {"tekken", true},
      {"falcon3", true},   {"pixtral", true},      {"lfm2", true},     {"chameleon", true},
      {"gpt-2", false},    {"qwen2", false},       {"smollm", false},  {"gpt-4o", false},
      {"llama4", false},   {"deepseek-v3", false}, {"default", false}};
  for (const auto& [pre, adds] : kFamilies) {
    const auto builder = [&, pre = pre] {
      return GgufBuilder()
          .String("tokenizer.ggml.model", "gpt2")
          .String("tokenizer.ggml.pre", pre)
          .Strings("tokenizer.ggml.tokens", {"<end>", "a"})
          .Strings("tokenizer.ggml.merges", {})
          .U32("tokenizer.ggml.bos_token_id", 0);
    };
    const auto spec = Read(builder());
    ASSERT_TRUE(spec.ok()) << pre << ": " << spec.status();
    EXPECT_EQ(spec->add_bos, adds) << pre;
    for (const bool said : {false, true}) {
      const auto told = Read(builder().Bool("tokenizer.ggml.add_bos_token", said));
      ASSERT_TRUE(told.ok()) << pre << ": " << told.status();
      EXPECT_EQ(told->add_bos, said) << pre;
    }
  }
}

TEST(GgufTokenizer, EosMayBeAList) {
  const auto spec = Read(Bpe().Array<int32_t>("tokenizer.ggml.eos_token_id", 5, {3, 0}));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->eos, 3);
  EXPECT_THAT(spec->end_of_generation, ElementsAre(0, 3));
}

TEST(GgufTokenizer, WrongTypesSizesAndNumbersAreNamed) {
  const auto without = [](const char* key) {
    GgufBuilder builder;
    if (std::string(key) != "model") builder.String("tokenizer.ggml.model", "gpt2");
    if (std::string(key) != "tokens") builder.Strings("tokenizer.ggml.tokens", {"a"});
    if (std::string(key) != "merges") builder.Strings("tokenizer.ggml.merges", {});
    return builder;
  };
  EXPECT_EQ(Refusal(without("nothing")), "ok");
  for (const char* key : {"model", "tokens", "merges"}) {
    EXPECT_THAT(Refusal(without(key)), AllOf(HasSubstr(key), HasSubstr("absent")));
  }
  EXPECT_THAT(Refusal(without("tokens").Strings("tokenizer.ggml.tokens", {})), HasSubstr("empty"));
  EXPECT_THAT(Refusal(without("tokens").Array<int32_t>("tokenizer.ggml.tokens", 5, {1})),
              AllOf(HasSubstr("tokens"), HasSubstr("array of strings")));
  EXPECT_THAT(
      Refusal(without("tokens").Strings("tokenizer.ggml.tokens", {"a", std::string(70'000, 'x')})),
      AllOf(HasSubstr("element 1"), HasSubstr("70000")));
  EXPECT_THAT(Refusal(Bpe().Array<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1})),
              AllOf(HasSubstr("token_type"), HasSubstr("3"), HasSubstr("4")));
  EXPECT_THAT(Refusal(Bpe().Array<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 7})),
              AllOf(HasSubstr("token 3"), HasSubstr("type 7")));
  EXPECT_THAT(Refusal(Bpe().Array<float>("tokenizer.ggml.scores", 6, {1, 1})), HasSubstr("scores"));
  EXPECT_THAT(Refusal(Bpe().Array<float>("tokenizer.ggml.scores", 6,
                                         {1, 1, std::numeric_limits<float>::quiet_NaN(), 1})),
              AllOf(HasSubstr("token 2"), HasSubstr("nan")));
  EXPECT_THAT(Refusal(Bpe().Array<int32_t>("tokenizer.ggml.scores", 5, {1, 1, 1, 1})),
              AllOf(HasSubstr("scores"), HasSubstr("array of f32")));
  for (const char* key : {"bos", "eos", "eot", "eom", "unknown", "padding"}) {
    const std::string full = std::string("tokenizer.ggml.") + key + "_token_id";
    EXPECT_THAT(Refusal(Bpe().U32(full, 4)), AllOf(HasSubstr(full), HasSubstr("is 4")));
    EXPECT_THAT(Refusal(Bpe().String(full, "x")), HasSubstr(full));
  }
  EXPECT_THAT(Refusal(Bpe().Array<int32_t>("tokenizer.ggml.eos_token_ids", 5, {-1})),
              HasSubstr("-1"));
  EXPECT_THAT(Refusal(Bpe().U32("tokenizer.ggml.add_bos_token", 1)), HasSubstr("add_bos_token"));
}

}  // namespace
}  // namespace staffel
