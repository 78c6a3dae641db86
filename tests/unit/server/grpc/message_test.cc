#include "server/grpc/message.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <random>

#include "inference.pb.h"
#include "tests/support/seed.h"

namespace staffel {
namespace {

using ::testing::HasSubstr;

v1::ChatRequest Chat(int message_count) {
  v1::ChatRequest request;
  for (int i = 0; i < message_count; i++) request.add_messages();
  return request;
}

TEST(ReadMessage, ReadsWhatWasWritten) {
  v1::ChatRequest sent = Chat(2);
  sent.mutable_messages(1)->set_content("grüß dich");
  sent.mutable_sampling()->set_temperature(0.5f);
  sent.mutable_sampling()->add_stop_token_ids(7);
  v1::ChatRequest read;
  EXPECT_FALSE(ReadMessage(sent.SerializeAsString(), read));
  EXPECT_EQ(read.SerializeAsString(), sent.SerializeAsString());
  EXPECT_FALSE(ReadMessage("", read));
  EXPECT_EQ(read.messages_size(), 0);
}

TEST(ReadMessage, UnknownFieldsAreNoError) {
  // Field 1000 with a varint and with bytes.
  v1::ModelsRequest read;
  EXPECT_FALSE(ReadMessage(std::string("\xC0\x3E\x01\xC2\x3E\x02hi", 8), read));
}

TEST(ReadMessage, RefusesWhatIsNoMessage) {
  v1::ChatRequest read;
  for (const std::string bytes : {"{\"model\":\"x\"}", "\x0A\x7F", "\xFF\xFF\xFF", "\x0B\x0C"}) {
    const auto error = ReadMessage(bytes, read);
    ASSERT_TRUE(error) << bytes;
    EXPECT_EQ(error->status, 400);
    EXPECT_THAT(error->message, HasSubstr("staffel.v1.ChatRequest"));
  }
}

TEST(ReadMessage, RefusesTextThatIsNotUtf8) {
  v1::ChatRequest read;
  const auto error = ReadMessage(std::string("\x0A\x02\xC3\x28", 4), read);  // model = "\xC3("
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, HasSubstr("UTF-8"));
}

TEST(ReadMessage, CountsMessagesWithin) {
  v1::ChatRequest read;
  EXPECT_FALSE(ReadMessage(Chat(kMessageFieldsMax).SerializeAsString(), read));
  const auto error = ReadMessage(Chat(kMessageFieldsMax + 1).SerializeAsString(), read);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status, 400);
  EXPECT_THAT(error->message, HasSubstr("1000000 fields"));

  v1::ChatRequest deep = Chat(1);
  for (int i = 0; i <= kMessageFieldsMax; i++) deep.mutable_messages(0)->add_tool_calls();
  EXPECT_TRUE(ReadMessage(deep.SerializeAsString(), read));
}

TEST(ReadMessage, APackedListCountsOnce) {
  v1::DetokenizeRequest sent, read;
  for (int i = 0; i < 2 * kMessageFieldsMax; i++) sent.add_tokens(1);
  EXPECT_FALSE(ReadMessage(sent.SerializeAsString(), read));
  EXPECT_EQ(read.tokens_size(), 2 * kMessageFieldsMax);
}

// Whatever comes, it agrees with the parser of protobuf, but for groups.
TEST(ReadMessage, DamagedMessagesAreReadOrRefused) {
  google::protobuf::SetLogHandler(nullptr);  // thousands of texts that are not UTF-8
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  v1::ChatRequest sent = Chat(3);
  sent.mutable_messages(0)->set_content("hello");
  sent.mutable_messages(1)->add_tool_calls()->set_arguments("{}");
  (*sent.mutable_sampling()->mutable_logit_bias())[3] = 1.0f;
  const std::string whole = sent.SerializeAsString();
  for (int i = 0; i < 20'000; i++) {
    std::string bytes = whole.substr(0, random() % (whole.size() + 1));
    for (int k = random() % 3; k > 0 && !bytes.empty(); k--)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    v1::ChatRequest read, other;
    if (!ReadMessage(bytes, read)) {
      ASSERT_TRUE(other.ParseFromString(bytes));
    }
  }
}

}  // namespace
}  // namespace staffel
