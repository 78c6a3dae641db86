// Fields of clients that have names of their own, or that cannot be honoured.
#include <gtest/gtest.h>

#include "server/api/fields.h"

namespace staffel::api {
namespace {

TEST(CopyFields, TakesNamedFieldsUnderTheOtherName) {
  constexpr ClientName kNames[] = {{"max_tokens", "n_predict"}, {"stop", "stop"}, {"seed", "seed"}};
  Json fields = {{"seed", 1}, {"top_k", 40}};
  CopyFields(Json::parse(R"({"n_predict":3,"stop":["a"],"seed":null,"more":1})"), kNames, fields);
  EXPECT_EQ(fields.dump(), R"({"seed":1,"top_k":40,"max_tokens":3,"stop":["a"]})");
}

TEST(CheckFields, NeutralFieldsTakeTheirFallbackOnly) {
  constexpr Field kFields[] = {{.name = "mirostat", .fallback = "0", .use = FieldUse::kNeutral},
                               {.name = "lora", .fallback = "[]", .use = FieldUse::kNeutral}};
  for (const char* taken :
       {"{}", R"({"mirostat":0,"lora":[]})", R"({"mirostat":0.0})", R"({"mirostat":null})"}) {
    const Json body = Json::parse(taken);
    FieldReader reader(body);
    CheckFields(reader, kFields);
    EXPECT_TRUE(reader.ok()) << taken;
  }
  for (const char* refused :
       {R"({"mirostat":2})", R"({"lora":[{"id":0}]})", R"({"mirostat":"0"})"}) {
    const Json body = Json::parse(refused);
    FieldReader reader(body);
    CheckFields(reader, kFields);
    ASSERT_FALSE(reader.ok()) << refused;
    EXPECT_NE(reader.error()->message.find("leave it out, or send"), std::string::npos);
    EXPECT_EQ(reader.error()->status, 400);
  }
}

}  // namespace
}  // namespace staffel::api
