#include "modelfile/gguf_metadata.h"

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
using testing::Raw;

class GgufMetadataTest : public ::testing::Test {
 protected:
  const Metadata& Load(const GgufBuilder& builder) {
    file_ = builder.Build();
    auto model =
        ReadGguf({reinterpret_cast<const uint8_t*>(file_.data()), file_.size()}, "test.gguf");
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    return model_->metadata();
  }

 private:
  std::string file_;
  std::unique_ptr<ModelFile> model_;
};

template <class T>
std::string Message(const Result<T>& result) {
  return result.ok() ? "ok" : std::string(result.status().message());
}

TEST_F(GgufMetadataTest, IntegersOfEveryWidth) {
  const Metadata& metadata = Load(GgufBuilder()
                                      .U8("u8", 255)
                                      .RawKey("i8", 1, Raw<int8_t>(-7))
                                      .U16("u16", 65535)
                                      .RawKey("i16", 3, Raw<int16_t>(-300))
                                      .U32("u32", 4'000'000'000u)
                                      .I32("i32", -2)
                                      .U64("u64", uint64_t{1} << 40)
                                      .I64("i64", std::numeric_limits<int64_t>::min())
                                      .U64("huge", ~uint64_t{0}));
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(*metadata.Int("u8", kMin, kMax), 255);
  EXPECT_EQ(*metadata.Int("i8", kMin, kMax), -7);
  EXPECT_EQ(*metadata.Int("u16", kMin, kMax), 65535);
  EXPECT_EQ(*metadata.Int("i16", kMin, kMax), -300);
  EXPECT_EQ(*metadata.Int("u32", kMin, kMax), 4'000'000'000);
  EXPECT_EQ(*metadata.Int("i32", kMin, kMax), -2);
  EXPECT_EQ(*metadata.Int("u64", kMin, kMax), int64_t{1} << 40);
  EXPECT_EQ(*metadata.Int("i64", kMin, kMax), kMin);
  EXPECT_THAT(Message(metadata.Int("huge", kMin, kMax)),
              AllOf(HasSubstr("'huge'"), HasSubstr("18446744073709551615")));
}

TEST_F(GgufMetadataTest, RangesAreInclusiveAndNamedInTheMessage) {
  const Metadata& metadata = Load(GgufBuilder().U32("heads", 9).I32("negative", -1));
  EXPECT_EQ(*metadata.Int("heads", 9, 9), 9);
  for (const auto& result : {metadata.Int("heads", 10, 20), metadata.Int("heads", 1, 8)}) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(result),
                AllOf(HasSubstr("'heads'"), HasSubstr("is 9"), HasSubstr("from 1")));
  }
  EXPECT_FALSE(metadata.Int("negative", 0, 1u << 31).ok());
}

TEST_F(GgufMetadataTest, AbsentKeysAndWrongTypes) {
  const Metadata& metadata = Load(GgufBuilder()
                                      .String("text", "x")
                                      .U32("number", 1)
                                      .F32("float", 1.5f)
                                      .Array<int32_t>("ints", 5, {1, 2}));
  EXPECT_TRUE(metadata.Has("text"));
  EXPECT_FALSE(metadata.Has("tex"));
  const auto absent = metadata.Int("llama.block_count", 0, 1);
  EXPECT_EQ(absent.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(absent), HasSubstr("'llama.block_count'"));
  EXPECT_THAT(Message(metadata.Int("text", 0, 1)),
              AllOf(HasSubstr("string"), HasSubstr("integer")));
  EXPECT_FALSE(metadata.Int("float", 0, 9).ok());
  EXPECT_FALSE(metadata.Int("ints", 0, 9).ok());
  EXPECT_FALSE(metadata.Float("text").ok());
  EXPECT_FALSE(metadata.Bool("number").ok());
  EXPECT_FALSE(metadata.String("number").ok());
  EXPECT_FALSE(metadata.IntArray("number").ok());
  EXPECT_THAT(metadata.Keys(), ElementsAre("text", "number", "float", "ints"));
}

TEST_F(GgufMetadataTest, Floats) {
  const Metadata& metadata = Load(GgufBuilder()
                                      .F32("f32", 1e-5f)
                                      .F64("f64", 0.25)
                                      .U32("u32", 10000)
                                      .F32("nan", std::numeric_limits<float>::quiet_NaN())
                                      .F32("inf", std::numeric_limits<float>::infinity()));
  EXPECT_EQ(*metadata.Float("f32"), 1e-5f);
  EXPECT_EQ(*metadata.Float("f64"), 0.25);
  EXPECT_EQ(*metadata.Float("u32"), 10000.0);
  EXPECT_THAT(Message(metadata.Float("nan")), AllOf(HasSubstr("'nan'"), HasSubstr("finite")));
  EXPECT_FALSE(metadata.Float("inf").ok());
}

TEST_F(GgufMetadataTest, BoolsAndStrings) {
  const Metadata& metadata = Load(GgufBuilder()
                                      .Bool("yes", true)
                                      .Bool("no", false)
                                      .RawKey("two", 7, Raw<uint8_t>(2))
                                      .String("text", "h\xc3\xa9")
                                      .String("latin1", "h\xe9")
                                      .String("nul", std::string_view("a\0b", 3))
                                      .String("empty", ""));
  EXPECT_TRUE(*metadata.Bool("yes"));
  EXPECT_FALSE(*metadata.Bool("no"));
  EXPECT_FALSE(metadata.Bool("two").ok());
  EXPECT_EQ(*metadata.String("text"), "h\xc3\xa9");
  EXPECT_EQ(*metadata.String("empty"), "");
  EXPECT_THAT(Message(metadata.String("latin1")), AllOf(HasSubstr("'latin1'"), HasSubstr("UTF-8")));
  EXPECT_FALSE(metadata.String("nul").ok());
}

TEST_F(GgufMetadataTest, IntArrays) {
  const Metadata& metadata = Load(GgufBuilder()
                                      .Array<int32_t>("i32", 5, {3, -1})
                                      .Array<uint8_t>("bools", 7, {1, 0, 1})
                                      .Array<uint8_t>("bad bools", 7, {1, 2})
                                      .Array<uint64_t>("u64", 10, {~uint64_t{0}})
                                      .Array<float>("f32", 6, {1})
                                      .Array<float>("no f32", 6, {})
                                      .Strings("strings", {"a"})
                                      .Array<uint8_t>("many", 0, std::vector<uint8_t>(3 << 20)));
  EXPECT_THAT(*metadata.IntArray("i32"), ElementsAre(3, -1));
  EXPECT_THAT(*metadata.IntArray("bools"), ElementsAre(1, 0, 1));
  for (const char* key : {"bad bools", "u64", "f32", "no f32", "strings", "many"}) {
    EXPECT_THAT(Message(metadata.IntArray(key)), HasSubstr(std::string("'") + key + "'"));
  }
}

}  // namespace
}  // namespace staffel
