#include <gtest/gtest.h>

#include "server/api/text_tokens.h"
#include "tests/unit/server/api/fakes.h"

namespace staffel::api {
namespace {

TEST(TgiTokenize, TheFieldTellsTheShape) {
  ApiWorld world;
  EXPECT_EQ(
      world.Post("/tokenize", R"({"inputs":"hi"})")->body,
      R"([{"id":104,"text":"h","start":0,"stop":1},{"id":105,"text":"i","start":1,"stop":2}])");
  EXPECT_EQ(world.Post("/tokenize", R"({"prompt":"hi"})")->json()["count"], 2);
  EXPECT_EQ(world.Post("/tokenize", R"({"inputs":5})")->status, 400);
}

TEST(TgiTokenize, TokenizerInfo) {
  ApiWorld world;
  auto tokenizer = std::make_shared<ByteTokenizer>();
  tokenizer->mutable_spec().eos = ByteTokenizer::kEnd;
  world.model->tokenizer = tokenizer;
  world.model->facts.chat_template = "{{ x }}";
  const auto info = world.Post("/tokenizer_info", "", "GET")->json();
  EXPECT_EQ(info["eos_token"], "<|end|>");
  EXPECT_TRUE(info["bos_token"].is_null());
  EXPECT_EQ(info["vocab_size"], 258);
  EXPECT_EQ(info["chat_template"], "{{ x }}");
}

TEST(TgiTokenize, RangesCountCharacters) {
  const ByteTokenizer tokenizer;
  const std::string text = "\xC3\xA4x<|end|>";
  const Json tokens = TokensInText(tokenizer, text, tokenizer.Encode(text, true, true));
  // Both halves of the first character are that character.
  EXPECT_EQ(
      tokens.dump(),
      R"([{"id":195,"text":"ä","start":0,"stop":1},{"id":164,"text":"ä","start":0,"stop":1},)"
      R"({"id":120,"text":"x","start":1,"stop":2},{"id":256,"text":"<|end|>","start":2,"stop":9}])");
}

TEST(TgiTokenize, TokensThatTheTextLacksAreEmpty) {
  const ByteTokenizer tokenizer;
  const Json tokens = TokensInText(tokenizer, "a", std::vector<TokenId>{ByteTokenizer::kTurn, 'a'});
  EXPECT_EQ(tokens[0].dump(), R"({"id":257,"text":"","start":0,"stop":0})");
  EXPECT_EQ(tokens[1]["stop"], 1);
}

TEST(TgiTokenize, Chats) {
  ApiWorld world;
  const auto json =
      world.Post("/chat_tokenize", R"({"messages":[{"role":"user","content":"hi"}]})")->json();
  EXPECT_EQ(json["templated_text"], "<|turn|>user:hi<|end|><|turn|>");
  EXPECT_EQ(json["tokenize_response"].size(), 10u);
  EXPECT_EQ(json["tokenize_response"][0]["text"], "<|turn|>");
  EXPECT_EQ(json["tokenize_response"][9]["stop"], json["templated_text"].get<std::string>().size());
  EXPECT_EQ(world.Post("/chat_tokenize", "{}")->status, 422);
}

}  // namespace
}  // namespace staffel::api
