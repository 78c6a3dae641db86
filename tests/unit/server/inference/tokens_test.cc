// Tokenize, Detokenize, Models, Embed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/inference/world.h"

namespace staffel::api::inference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Tokenize, OfATextAndBack) {
  InferenceWorld world;
  v1::TokenizeRequest request;
  request.set_text("a<|end|>");
  request.set_parse_special(true);
  request.set_return_token_strs(true);
  auto call = world.Call<v1::TokenizeResponse>("Tokenize", request);
  ASSERT_EQ(call->messages.size(), 1u) << call->message();
  const v1::TokenizeResponse& response = call->messages[0];
  EXPECT_THAT(response.tokens(), ElementsAre('a', ByteTokenizer::kEnd));
  EXPECT_EQ(response.count(), 2u);
  EXPECT_EQ(response.max_model_len(), 128u);
  EXPECT_THAT(response.token_strs(), ElementsAre("a", "<|end|>"));
  EXPECT_EQ(call->status(), 200);

  v1::DetokenizeRequest back;
  *back.mutable_tokens() = response.tokens();
  auto text = world.Call<v1::DetokenizeResponse>("Detokenize", back);
  EXPECT_EQ(text->messages.at(0).prompt(), "a<|end|>");

  request.clear_parse_special();
  request.clear_return_token_strs();
  auto plain = world.Call<v1::TokenizeResponse>("Tokenize", request);
  EXPECT_EQ(plain->messages.at(0).tokens_size(), 8);
  EXPECT_EQ(plain->messages.at(0).token_strs_size(), 0);
}

TEST(Tokenize, OfAConversation) {
  InferenceWorld world;
  v1::TokenizeRequest request;
  *request.mutable_chat()->mutable_messages() = Says("hi").messages();
  auto call = world.Call<v1::TokenizeResponse>("Tokenize", request);
  const auto& tokens = call->messages.at(0).tokens();
  EXPECT_EQ(ByteTokenizer().Decode(std::vector<TokenId>(tokens.begin(), tokens.end()), true),
            "<|turn|>user:hi<|end|><|turn|>");

  request.mutable_chat()->mutable_messages(0)->set_role("boss");
  call = world.Call<v1::TokenizeResponse>("Tokenize", request);
  EXPECT_EQ(call->param(), "chat.messages[0].role");
  EXPECT_THAT(call->message(), HasSubstr("'chat.messages[0].role'"));
  request.mutable_chat()->mutable_messages(0)->clear_role();
  EXPECT_EQ(world.Call<v1::TokenizeResponse>("Tokenize", request)->param(),
            "chat.messages[0].role");
  request.clear_input();
  EXPECT_EQ(world.Call<v1::TokenizeResponse>("Tokenize", request)->status(), 400);
}

TEST(Detokenize, TokensThatThereAreNot) {
  InferenceWorld world;
  v1::DetokenizeRequest request;
  request.add_tokens(258);
  auto call = world.Call<v1::DetokenizeResponse>("Detokenize", request);
  EXPECT_EQ(call->status(), 400);
  EXPECT_EQ(call->param(), "tokens");
  EXPECT_THAT(call->message(), HasSubstr("0 to 257, it holds 258"));
}

TEST(Detokenize, BytesThatAreNoCharacter) {
  InferenceWorld world;
  v1::DetokenizeRequest request;
  for (const uint32_t id : {0xC3u, 0x78u}) request.add_tokens(id);
  auto call = world.Call<v1::DetokenizeResponse>("Detokenize", request);
  EXPECT_EQ(call->messages.at(0).prompt(), "\xEF\xBF\xBDx");
}

TEST(Models, AllNames) {
  InferenceWorld world;
  auto call = world.Call<v1::ModelsResponse>("Models", v1::ModelsRequest());
  const auto& models = call->messages.at(0).models();
  ASSERT_EQ(models.size(), 2);
  EXPECT_EQ(models[0].id(), "tiny");
  EXPECT_EQ(models[1].id(), "alias");
  EXPECT_EQ(models[1].root(), "tiny");
  EXPECT_EQ(models[1].max_model_len(), 128u);
}

TEST(Models, BeforeThereAreAny) {
  InferenceWorld world;
  world.service.SetModels(nullptr);
  EXPECT_EQ(world.Call<v1::ModelsResponse>("Models", v1::ModelsRequest())->status(), 503);
}

TEST(Embed, OneAnswerForAllInputs) {
  InferenceWorld world;
  v1::EmbedRequest request;
  request.add_input("ab");
  request.add_input("c");
  request.set_dimensions(2);
  request.set_normalize(false);
  auto call = world.Call<v1::EmbedResponse>("Embed", request);
  world.engine->Embed({5, 6, 7}, 1);
  EXPECT_EQ(call->ends, 0);
  world.engine->Embed({1, 2, 3}, 0);
  ASSERT_EQ(call->status(), 200);
  ASSERT_EQ(call->messages.size(), 1u);
  const v1::EmbedResponse& response = call->messages[0];
  ASSERT_EQ(response.embeddings_size(), 2);
  EXPECT_THAT(response.embeddings(0).values(), ElementsAre(1, 2));
  EXPECT_THAT(response.embeddings(1).values(), ElementsAre(5, 6));
  EXPECT_EQ(response.model(), "tiny");
  EXPECT_EQ(response.usage().prompt_tokens(), 3);
}

TEST(Embed, TokenIds) {
  InferenceWorld world;
  v1::EmbedRequest request;
  for (const uint32_t id : {'h', 'i'}) request.mutable_token_ids()->Add()->add_ids(id);
  auto call = world.Call<v1::EmbedResponse>("Embed", request);
  ASSERT_EQ(world.engine->requests.size(), 2u);
  EXPECT_THAT(world.engine->requests[1].prompt, ElementsAre('i'));
}

TEST(Embed, ErrorsNameTheField) {
  InferenceWorld world;
  const auto fails = [&](const v1::EmbedRequest& request) {
    return world.Call<v1::EmbedResponse>("Embed", request)->param();
  };
  v1::EmbedRequest request;
  EXPECT_EQ(fails(request), "input");
  request.add_input("");
  EXPECT_EQ(fails(request), "input");
  request.clear_input();
  request.add_token_ids()->add_ids(1000);
  EXPECT_EQ(fails(request), "token_ids");
  request.add_input("both");
  EXPECT_EQ(fails(request), "input");
  request.clear_token_ids();
  request.set_dimensions(0);
  EXPECT_EQ(fails(request), "dimensions");
  request.set_model("huge");
  EXPECT_EQ(world.Call<v1::EmbedResponse>("Embed", request)->status(), 404);
  EXPECT_TRUE(world.engine->requests.empty());
}

}  // namespace
}  // namespace staffel::api::inference
