#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/api/fakes.h"

namespace staffel::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<RecordingWriter> Ask(ApiWorld& world, const std::string& parameters = "",
                                     const std::string& path = "/generate") {
  return world.Post(path, R"({"inputs":"hi","parameters":{)" + parameters + "}}");
}

// The end token, as the engine gives it.
void End(ApiWorld& world) {
  SeqEvent event;
  event.request = world.engine->requests.back().id;
  event.tokens.push_back({ByteTokenizer::kEnd, -0.25f, {}});
  event.finish = FinishReason::kStop;
  world.engine->Send(std::move(event));
}

TEST(Tgi, AWholeAnswer) {
  ApiWorld world;
  auto writer = Ask(world);
  world.engine->Say("Hello", FinishReason::kLength);
  EXPECT_EQ(writer->status, 200);
  EXPECT_EQ(writer->body, R"({"generated_text":"Hello"})");
  const GenerateRequest& request = world.engine->requests[0];
  EXPECT_EQ(request.max_tokens, 100);
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.top_logprobs, -1);
}

TEST(Tgi, TheRootTakesStreamAndAnswersWithAList) {
  ApiWorld world;
  auto whole = Ask(world, R"("return_full_text":true)", "/");
  world.engine->Say("!", FinishReason::kStop);
  EXPECT_EQ(whole->body, R"([{"generated_text":"hi!"}])");
  auto streamed = world.Post("/", R"({"inputs":"hi","stream":true})");
  world.engine->Say("!", FinishReason::kStop, 1);
  EXPECT_TRUE(streamed->ended);
  EXPECT_EQ(world.Post("/", R"({"inputs":"hi","stream":1})")->status, 422);
}

TEST(Tgi, FieldsThatShapeSamplingSwitchItOn) {
  const std::pair<const char*, float> cases[] = {
      {R"("do_sample":true)", 1.0f}, {R"("top_k":5)", 1.0f},         {R"("top_p":0.5)", 1.0f},
      {R"("typical_p":1.0)", 1.0f},  {R"("temperature":0.5)", 0.5f}, {R"("temperature":0)", 0.0f},
      {R"("seed":5)", 0.0f}};
  for (const auto& [parameters, temperature] : cases) {
    ApiWorld world;
    Ask(world, parameters);
    EXPECT_EQ(world.engine->requests[0].sampling.temperature, temperature) << parameters;
  }
}

TEST(Tgi, ParametersReachTheEngine) {
  ApiWorld world;
  Ask(world, R"("max_new_tokens":7,"do_sample":true,"top_k":3,"top_p":0.5,"repetition_penalty":1.5,
                "frequency_penalty":0.5,"seed":9,"truncate":1,"details":true,"top_n_tokens":2,
                "decoder_input_details":true,"watermark":false)");
  ASSERT_EQ(world.engine->requests.size(), 1u);
  const GenerateRequest& request = world.engine->requests[0];
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.sampling.top_p, 0.5f);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(request.sampling.frequency_penalty, 0.5f);
  EXPECT_EQ(request.sampling.seed, 9u);
  EXPECT_EQ(request.sampling.top_logprobs, 2);
  EXPECT_EQ(request.sampling.prompt_logprobs, 0);
  EXPECT_THAT(request.prompt, ElementsAre('i'));
}

TEST(Tgi, DetailsHaveTheTokens) {
  ApiWorld world;
  auto writer = Ask(world, R"("details":true,"top_n_tokens":1,"do_sample":true,"seed":5)");
  world.engine->Say("a\xC3");
  world.engine->Say("\xA4");
  End(world);
  const auto json = writer->json();
  EXPECT_EQ(json["generated_text"], "aä");
  const auto& details = json["details"];
  EXPECT_EQ(details["finish_reason"], "eos_token");
  EXPECT_EQ(details["generated_tokens"], 4);
  EXPECT_EQ(details["seed"], 5);
  EXPECT_TRUE(details["prefill"].empty());
  EXPECT_EQ(details["tokens"][0].dump(), R"({"id":97,"text":"a","logprob":-0.5,"special":false})");
  EXPECT_EQ(details["tokens"][1]["text"], "");
  EXPECT_EQ(details["tokens"][2]["text"], "ä");
  EXPECT_EQ(details["tokens"][3].dump(),
            R"({"id":256,"text":"<|end|>","logprob":-0.25,"special":true})");
  ASSERT_EQ(details["top_tokens"].size(), 4u);
  EXPECT_EQ(details["top_tokens"][0][1]["text"], "z");
}

TEST(Tgi, DetailsHaveThePromptAndGreedyAnswersNoSeed) {
  ApiWorld world;
  auto writer = Ask(world, R"("details":true,"decoder_input_details":true)");
  SeqEvent event;
  event.request = world.engine->requests[0].id;
  event.prompt_logprobs = {{.logprob = -1.5f}};
  event.tokens.push_back({'x', -0.5f, {}});
  event.finish = FinishReason::kLength;
  world.engine->Send(std::move(event));
  const auto details = writer->json()["details"];
  EXPECT_EQ(details["finish_reason"], "length");
  EXPECT_TRUE(details["seed"].is_null());
  EXPECT_EQ(details["prefill"].dump(),
            R"([{"id":104,"text":"h","logprob":null},{"id":105,"text":"i","logprob":-1.5}])");
}

TEST(Tgi, TheBestOfSeveralAnswers) {
  ApiWorld world;
  auto writer = Ask(world, R"("best_of":2,"do_sample":true,"details":true)");
  ASSERT_EQ(world.engine->requests[0].n, 2);
  world.engine->Say("bad", FinishReason::kLength, 0, 0);
  SeqEvent event;
  event.request = world.engine->requests[0].id;
  event.index = 1;
  event.tokens.push_back({'g', -0.1f, {}});
  event.finish = FinishReason::kLength;
  world.engine->Send(std::move(event));
  const auto json = writer->json();
  EXPECT_EQ(json["generated_text"], "g");
  ASSERT_EQ(json["details"]["best_of_sequences"].size(), 1u);
  EXPECT_EQ(json["details"]["best_of_sequences"][0]["generated_text"], "bad");
  EXPECT_EQ(json["details"]["best_of_sequences"][0]["generated_tokens"], 3);
}

TEST(Tgi, EventsOfAStream) {
  ApiWorld world;
  auto writer = Ask(world, R"("details":true,"return_full_text":true)", "/generate_stream");
  world.engine->Say("He");
  world.engine->Say("y");
  End(world);
  ASSERT_EQ(writer->events.size(), 4u);
  EXPECT_EQ(writer->events[0],
            R"({"index":1,"token":{"id":72,"text":"H","logprob":-0.5,"special":false},)"
            R"("generated_text":null,"details":null})");
  EXPECT_EQ(writer->event(2)["token"]["text"], "y");
  EXPECT_EQ(writer->event(3)["token"]["special"], true);
  EXPECT_EQ(writer->event(3)["generated_text"], "hiHey");
  EXPECT_EQ(writer->event(3)["details"].dump(),
            R"({"finish_reason":"eos_token","generated_tokens":4,"input_length":2,"seed":null})");
  EXPECT_TRUE(writer->ended);
  EXPECT_EQ(writer->answers, 1);
}

TEST(Tgi, TheLastTokenOfAStreamHasTheText) {
  ApiWorld world;
  auto writer = Ask(world, R"("top_n_tokens":1)", "/generate_stream");
  world.engine->Say("ab", FinishReason::kLength);
  ASSERT_EQ(writer->events.size(), 2u);
  EXPECT_EQ(writer->event(1)["index"], 2);
  EXPECT_EQ(writer->event(1)["top_tokens"][1]["text"], "z");
  EXPECT_EQ(writer->event(1)["generated_text"], "ab");
  EXPECT_TRUE(writer->event(1)["details"].is_null());
}

TEST(Tgi, AnAnswerThatAGrammarEndsHasAnEndToken) {
  ApiWorld world;
  auto writer = Ask(world, R"("details":true)", "/generate_stream");
  world.engine->Say("ab");
  world.engine->Say("", FinishReason::kStop);
  EXPECT_EQ(writer->event(-1)["token"]["id"], static_cast<int>(ByteTokenizer::kEnd));
  EXPECT_EQ(writer->event(-1)["generated_text"], "ab");
  EXPECT_EQ(writer->event(-1)["details"]["generated_tokens"], 2);
}

// The stop string is part of the text; what its last token has beyond it is not, nor streamed.
TEST(Tgi, StopStringsAreShown) {
  ApiWorld world;
  auto streamed = Ask(world, R"("stop":["END","no"],"details":true)", "/generate_stream");
  world.engine->Say("aENDb");
  std::string joined;
  for (size_t i = 0; i < streamed->events.size(); i++)
    joined += streamed->event(static_cast<int>(i))["token"]["text"];
  EXPECT_EQ(joined, "aEND");
  EXPECT_EQ(streamed->event(-1)["generated_text"], "aEND");
  EXPECT_EQ(streamed->event(-1)["details"]["finish_reason"], "stop_sequence");
  EXPECT_EQ(streamed->event(-1)["details"]["generated_tokens"], 4);
  auto whole = Ask(world, R"("stop":["END"],"details":true)");
  world.engine->Say("aEND", std::nullopt, 1);
  EXPECT_EQ(whole->json()["generated_text"], "aEND");
  EXPECT_EQ(whole->json()["details"]["tokens"].size(), 4u);
}

TEST(Tgi, Grammars) {
  using Kind = grammar::GrammarSpec::Kind;
  const std::tuple<const char*, Kind, const char*> cases[] = {
      {R"({"type":"json","value":{"type":"null"}})", Kind::kJsonSchema, R"({"type":"null"})"},
      {R"({"type":"json","value":"{}"})", Kind::kJsonSchema, "{}"},
      {R"({"type":"regex","value":"a+"})", Kind::kRegex, "a+"},
      {R"({"type":"json_schema","value":{"name":"n","schema":{"const":1}}})", Kind::kJsonSchema,
       R"({"const":1})"}};
  for (const auto& [grammar, kind, source] : cases) {
    ApiWorld world;
    world.model->grammars = std::make_shared<FakeGrammars>();
    Ask(world, std::string(R"("grammar":)") + grammar);
    ASSERT_EQ(world.engine->requests.size(), 1u) << grammar;
    EXPECT_EQ(world.engine->requests[0].sampling.grammar->kind, kind) << grammar;
    EXPECT_EQ(world.engine->requests[0].sampling.grammar->source, source) << grammar;
  }
}

TEST(Tgi, ErrorsHaveItsShapeAndNames) {
  const std::pair<const char*, const char*> refusals[] = {
      {R"("max_new_tokens":0)", "'parameters.max_new_tokens'"},
      {R"("temperature":"hot")", "'parameters.temperature'"},
      {R"("stop":[""])", "'parameters.stop'"},
      {R"("typical_p":0.9)", "'parameters.typical_p'"},
      {R"("adapter_id":"x")", "'parameters.adapter_id'"},
      {R"("watermark":true)", "'parameters.watermark'"},
      {R"("best_of":2)", "'parameters.best_of'"},
      {R"("grammar":{"type":"xml","value":"x"})", "'parameters.grammar.type'"},
      {R"("grammar":{"type":"regex"})", "'parameters.grammar.value'"},
      {R"("grammar":{"type":"json_schema","value":{}})", "'parameters.grammar.value'"},
      {R"("grammar":{"type":"regex","value":"["})", "'parameters.grammar'"},
      {R"("grammar":{"type":"regex","value":5})", "'parameters.grammar'"},
  };
  for (const auto& [parameters, name] : refusals) {
    ApiWorld world;
    world.model->grammars = std::make_shared<FakeGrammars>();
    auto writer = Ask(world, parameters);
    EXPECT_EQ(writer->status, 422) << parameters;
    EXPECT_EQ(writer->json()["error_type"], "validation");
    EXPECT_THAT(writer->json()["error"].get<std::string>(), HasSubstr(name));
    EXPECT_TRUE(world.engine->requests.empty());
  }
  ApiWorld world;
  for (const char* parameters :
       {R"("best_of":2,"do_sample":true)", R"("decoder_input_details":true)"})
    EXPECT_EQ(Ask(world, parameters, "/generate_stream")->status, 422) << parameters;
  EXPECT_THAT(world.Post("/generate", "{}")->body, HasSubstr("'inputs'"));
  EXPECT_EQ(world.Post("/generate", "[")->status, 422);
  const std::string longer(200, 'x');
  EXPECT_EQ(world.Post("/generate", R"({"inputs":")" + longer + "\"}")->status, 422);
}

TEST(Tgi, FailuresOfTheEngine) {
  ApiWorld world;
  auto writer = Ask(world, "", "/generate_stream");
  SeqEvent event;
  event.request = world.engine->requests[0].id;
  event.finish = FinishReason::kError;
  event.error = absl::InternalError("broken");
  world.engine->Send(event);
  EXPECT_EQ(writer->events.back(), R"({"error":"broken","error_type":"generation"})");
  EXPECT_TRUE(writer->ended);
  auto whole = Ask(world);
  event.request = world.engine->requests[1].id;
  world.engine->Send(event);
  EXPECT_EQ(whole->status, 424);
  world.engine->submit_status = absl::ResourceExhaustedError("the queue is full");
  auto full = Ask(world);
  EXPECT_EQ(full->status, 429);
  EXPECT_EQ(full->json()["error_type"], "overloaded");
}

TEST(Tgi, Info) {
  ApiWorld world;
  auto info = world.Post("/info", "", "GET")->json();
  EXPECT_EQ(info["model_id"], "tiny");
  EXPECT_EQ(info["max_total_tokens"], 128);
  EXPECT_EQ(info["max_input_tokens"], 96);
  EXPECT_EQ(info["max_stop_sequences"], 16);
}

}  // namespace
}  // namespace staffel::api
