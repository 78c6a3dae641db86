#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/api/fakes.h"

namespace staffel::api {
namespace {

using ::testing::ElementsAre;

TEST(LlamaRoutes, PropsOfTheModel) {
  ApiWorld world;
  world.model->facts.chat_template = "{{ template }}";
  const auto json = world.Post("/props", "", "GET")->json();
  EXPECT_EQ(json["default_generation_settings"]["n_ctx"], 128);
  EXPECT_FLOAT_EQ(json["default_generation_settings"]["params"]["temperature"], 0.8f);
  EXPECT_EQ(json["default_generation_settings"]["params"]["n_predict"], -1);
  EXPECT_EQ(json["total_slots"], 2);
  EXPECT_EQ(json["model_alias"], "tiny");
  EXPECT_EQ(json["chat_template"], "{{ template }}");
  EXPECT_EQ(json["modalities"]["vision"], false);
  auto other = std::make_shared<ServedModel>(*world.model);
  other->names = {"org/other"};
  world.service.SetModels(
      std::make_shared<ModelSet>(ModelSet{.served = {world.model, other}, .pending = {}}));
  const auto get = [&](const std::string& query) {
    auto writer = std::make_shared<RecordingWriter>();
    HttpRequest request;
    request.method = "GET";
    request.path = "/props";
    request.query = query;
    world.router.Find("GET", "/props").handler(std::move(request), writer);
    return writer;
  };
  EXPECT_EQ(get("")->status, 400) << "there are several";
  EXPECT_EQ(get("x=1&model=org%2Fother")->json()["model_alias"], "org/other");
  EXPECT_EQ(get("model=none")->status, 404);
}

TEST(LlamaRoutes, SlotsAreBusyAsSequencesRun) {
  ApiWorld world;
  world.engine->now.running = 1;
  const auto json = world.Post("/slots", "", "GET")->json();
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["is_processing"], true);
  EXPECT_EQ(json[1]["is_processing"], false);
  EXPECT_EQ(json[1]["id"], 1);
  EXPECT_EQ(json[1]["n_ctx"], 128);
  const auto ask = [&](const std::string& query) {
    auto writer = std::make_shared<RecordingWriter>();
    HttpRequest request;
    request.query = query;
    world.router.Find("GET", "/slots").handler(std::move(request), writer);
    return writer->status;
  };
  EXPECT_EQ(ask("fail_on_no_slot=1"), 200);
  world.engine->now.running = 2;
  EXPECT_EQ(ask("fail_on_no_slot=1"), 503);
  EXPECT_EQ(ask("fail_on_no_slot=0"), 200);
}

TEST(LlamaRoutes, ApplyTemplate) {
  ApiWorld world;
  auto writer = world.Post("/apply-template", R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(writer->json()["prompt"], "<|turn|>user:hi<|end|><|turn|>");
  EXPECT_EQ(world.Post("/apply-template", "{}")->json()["error"]["code"], 400);
}

TEST(Tokenize, TheShapeOfTheRequestTellsWhose) {
  ApiWorld world;
  EXPECT_EQ(world.Post("/tokenize", R"({"content":"h<|end|>"})")->body, R"({"tokens":[104,256]})");
  EXPECT_EQ(world.Post("/tokenize", R"({"content":"<|end|>","parse_special":false})")
                ->json()["tokens"]
                .size(),
            7u);
  const auto pieces =
      world.Post("/tokenize", R"({"content":"hé","with_pieces":true})")->json()["tokens"];
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].dump(), R"({"id":104,"piece":"h"})");
  EXPECT_EQ(pieces[1].dump(), R"({"id":195,"piece":[195]})");
  EXPECT_THAT(world.Post("/tokenize", R"({"prompt":"h<"})")->json()["tokens"],
              ElementsAre('h', '<'));
  EXPECT_EQ(world.Post("/tokenize", R"({"content":3})")->status, 400);
  const auto text = world.Post("/detokenize", R"({"tokens":[104,105]})")->json();
  EXPECT_EQ(text["content"], "hi");
  EXPECT_EQ(text["prompt"], "hi");
}

}  // namespace
}  // namespace staffel::api
