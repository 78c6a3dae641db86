// What a sink gets, whatever the wire format.
#include "server/api/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/generation_request.h"
#include "tests/unit/server/api/fakes.h"

namespace staffel::api {
namespace {

using ::testing::ElementsAre;

// What a sink has been told, kept beyond its life.
struct Told {
  std::vector<std::string> calls;
  std::vector<Piece> pieces;
  std::vector<ChoiceResult> choices;
  Usage usage;
  ApiError error;
  std::function<void()> disconnect;
  bool reads = true;  // the client
};

class RecordingSink final : public AnswerSink {
 public:
  explicit RecordingSink(Told* told) : told_(told) {}
  bool BeginStream() override { return Tell("begin"); }
  bool OpenChoice(const ChoiceResult&) override { return Tell("open"); }
  bool WritePiece(int, const Piece& piece) override {
    told_->pieces.push_back(piece);
    return Tell("piece");
  }
  void Complete(const std::vector<ChoiceResult>& choices, const Usage& usage) override {
    Tell("complete");
    told_->choices = choices;
    told_->usage = usage;
  }
  void Fail(const ApiError& error) override {
    Tell("fail");
    told_->error = error;
  }
  void OnDisconnect(std::function<void()> callback) override {
    told_->disconnect = std::move(callback);
  }

 private:
  bool Tell(const char* call) {
    told_->calls.push_back(call);
    return told_->reads;
  }
  Told* const told_;
};

struct World : ApiWorld {
  // `members` beside the prompt "hi".
  void Start(const std::string& members, bool gather = false) {
    const Json body = Json::parse(R"({"prompt":"hi")" + members + "}");
    FieldReader reader(body);
    Checked<GenerationSpec> read = ReadCompletion(model, reader);
    GenerationSpec& spec = std::get<GenerationSpec>(read);
    spec.gather = gather;
    spec.runner = &runner;
    spec.sink = std::make_unique<RecordingSink>(&told);
    Generation::Start(std::move(spec));
  }
  Told told;
};

TEST(Generation, AWholeAnswerIsOneCall) {
  World world;
  world.engine->cached_tokens = 1;
  world.Start(R"(,"stop":["xx","END"])");
  world.engine->Say("abEN");
  EXPECT_THAT(world.told.calls, ElementsAre());
  world.engine->Say("Dz");
  EXPECT_THAT(world.told.calls, ElementsAre("complete"));
  const ChoiceResult& choice = world.told.choices.at(0);
  EXPECT_EQ(choice.all.text, "ab");
  EXPECT_EQ(choice.all.stop_string, "END");
  EXPECT_FALSE(choice.all.stop_token);
  EXPECT_EQ(choice.completion_tokens, 5);
  EXPECT_EQ(world.told.usage.prompt_tokens, 2);
  EXPECT_EQ(world.told.usage.cached_tokens, 1);
  EXPECT_EQ(world.told.usage.completion_tokens, 5);
  EXPECT_GT(world.told.usage.prompt_time, Duration::zero());
  EXPECT_GT(world.told.usage.answer_time, Duration::zero());
}

TEST(Generation, TheStopTokenIsTold) {
  World world;
  world.Start("");
  SeqEvent event;
  event.request = world.engine->requests[0].id;
  event.tokens = {{'a'}, {ByteTokenizer::kEnd}};
  event.finish = FinishReason::kStop;
  world.engine->Send(std::move(event));
  EXPECT_EQ(world.told.choices.at(0).all.stop_token->token, ByteTokenizer::kEnd);
  EXPECT_FALSE(world.told.choices[0].all.stop_string);
}

TEST(Generation, AStreamEndsWithThePieceThatHasTheFinish) {
  World world;
  world.Start(R"(,"stream":true)");
  EXPECT_THAT(world.told.calls, ElementsAre("begin", "open"));
  world.engine->Say("a");
  world.engine->Say("b", FinishReason::kLength);
  EXPECT_THAT(world.told.calls, ElementsAre("begin", "open", "piece", "piece", "complete"));
  EXPECT_EQ(world.told.pieces[1].text, "b");
  EXPECT_EQ(world.told.pieces[1].finish, FinishReason::kLength);
  EXPECT_EQ(world.told.choices.at(0).all.text, "") << "the sink has it";
  EXPECT_EQ(world.told.choices[0].all.finish, FinishReason::kLength);
}

TEST(Generation, AStreamIsGatheredWhereTheSinkWantsItAll) {
  World world;
  world.Start(R"(,"stream":true)", /*gather=*/true);
  world.engine->Say("a");
  world.engine->Say("b", FinishReason::kLength);
  EXPECT_EQ(world.told.pieces.size(), 2u);
  EXPECT_EQ(world.told.choices.at(0).all.text, "ab");
  EXPECT_EQ(world.told.choices[0].all.tokens.size(), 2u);
}

TEST(Generation, ARefusalOfTheEngineIsTheOnlyCall) {
  World world;
  world.engine->submit_status = absl::ResourceExhaustedError("the queue is full");
  world.Start(R"(,"stream":true)");
  EXPECT_THAT(world.told.calls, ElementsAre("fail"));
  EXPECT_EQ(world.told.error.status, 429);
}

TEST(Generation, AClientThatIsGoneIsCancelledAndStillEnded) {
  World world;
  world.Start(R"(,"stream":true)");
  world.told.reads = false;
  world.engine->Say("a");
  EXPECT_EQ(world.engine->cancelled.size(), 1u);
  world.engine->Say("", FinishReason::kCancelled);
  EXPECT_EQ(world.told.calls.back(), "complete");
  EXPECT_EQ(world.told.choices.at(0).all.finish, FinishReason::kCancelled);
}

}  // namespace
}  // namespace staffel::api
