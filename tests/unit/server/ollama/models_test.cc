#include "server/ollama/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/api/fakes.h"

namespace staffel::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OllamaModels, NamesHaveATag) {
  EXPECT_EQ(ollama::Tagged("a"), "a:latest");
  EXPECT_EQ(ollama::Tagged("a:7b"), "a:7b");
  EXPECT_EQ(ollama::Tagged("host:80/a"), "host:80/a:latest");
  EXPECT_EQ(ollama::Tagged("host/a:x"), "host/a:x");
}

TEST(OllamaModels, NamesAreFoundWithAndWithoutTag) {
  ApiWorld world;
  world.model->names = {"tiny", "big:latest", "x:7b"};
  const auto status = [&](const std::string& name) {
    return world.Post("/api/show", R"({"model":")" + name + "\"}")->status;
  };
  for (const char* name : {"tiny", "tiny:latest", "big", "big:latest", "x:7b"})
    EXPECT_EQ(status(name), 200) << name;
  for (const char* name : {"x", "x:latest", "tiny:7b", "", ":latest"})
    EXPECT_EQ(status(name), 404) << name;
  EXPECT_EQ(world.Post("/api/show", R"({"name":"tiny"})")->status, 200)
      << "the earlier name of the field";
  EXPECT_EQ(world.Post("/api/show", R"({"model":3})")->status, 400);
}

TEST(OllamaModels, TagsShowAndPs) {
  ApiWorld world;
  world.model->created_unix_s = 1700000000;
  world.model->facts.architecture = "llama";
  world.model->facts.weight_type = "Q4_1";
  world.model->facts.parameter_count = 134515008;
  world.model->facts.file_bytes = 98765;
  world.model->facts.digest = std::string(64, 'a');
  world.model->facts.chat_template = "{{ tools }}";
  world.model->facts.metadata = {{"llama.context_length", "8192"}, {"general.name", "\"T\""}};
  const auto tags = world.Post("/api/tags", "", "GET")->json()["models"];
  ASSERT_EQ(tags.size(), 2u) << "each name";
  EXPECT_EQ(tags[0]["name"], "tiny:latest");
  EXPECT_EQ(tags[1]["model"], "alias:latest");
  EXPECT_EQ(tags[0]["size"], 98765);
  EXPECT_EQ(tags[0]["modified_at"], "2023-11-14T22:13:20.000000000Z");
  EXPECT_EQ(tags[0]["details"]["parameter_size"], "134.52M");
  EXPECT_EQ(tags[0]["details"]["quantization_level"], "Q4_1");

  const auto running = world.Post("/api/ps", "", "GET")->json()["models"];
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0]["context_length"], 128);
  EXPECT_THAT(running[0]["expires_at"].get<std::string>(), HasSubstr("T"));

  const auto shown = world.Post("/api/show", R"({"model":"tiny"})")->json();
  EXPECT_EQ(shown["model_info"]["llama.context_length"], 8192);
  EXPECT_EQ(shown["model_info"]["general.parameter_count"], 134515008);
  EXPECT_EQ(shown["template"], "{{ tools }}");
  EXPECT_THAT(shown["capabilities"], ElementsAre("completion", "tools"));
}

TEST(OllamaModels, WhatCannotBeDoneSaysSo) {
  ApiWorld world;
  EXPECT_EQ(world.Post("/api/pull", R"({"model":"tiny","stream":false})")->body,
            R"({"status":"success"})");
  const auto stream = world.Post("/api/pull", R"({"model":"tiny"})");
  EXPECT_THAT(stream->events, ElementsAre(R"({"status":"success"})"));
  EXPECT_EQ(world.Post("/api/pull", R"({"model":"llama3"})")->status, 404);
  for (const char* path : {"/api/create", "/api/copy", "/api/push", "/api/blobs/sha256:0"}) {
    const auto writer = world.Post(path, "{}");
    EXPECT_EQ(writer->status, 501) << path;
    EXPECT_TRUE(writer->json()["error"].is_string()) << path;
  }
  EXPECT_EQ(world.Post("/api/delete", "{}", "DELETE")->status, 501);
  EXPECT_EQ(world.Post("/", "", "GET")->body, "Ollama is running");
  EXPECT_TRUE(world.Post("/api/version", "", "GET")->json()["version"].is_string());
}

}  // namespace
}  // namespace staffel::api
