// Headers that are wrong in one place are refused with a message that names the place.
#include "modelfile/gguf_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/gguf_builder.h"

namespace staffel {
namespace {

using ::testing::AllOf;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::Raw;
using testing::RawString;

absl::Span<const uint8_t> BytesOf(const std::string& file) {
  return {reinterpret_cast<const uint8_t*>(file.data()), file.size()};
}

std::string Refusal(const std::string& file) {
  const Result<GgufHeader> header = ParseGgufHeader(BytesOf(file));
  return header.ok() ? "loaded" : std::string(header.status().message());
}
std::string Refusal(const GgufBuilder& builder) { return Refusal(builder.Build()); }

GgufBuilder Small() {
  GgufBuilder builder;
  builder.String("general.architecture", "llama").U32("llama.block_count", 1);
  return builder;
}

TEST(GgufHeader, KeysAndTensorsAreWhereTheFileSays) {
  const std::string f32(4 * 6, '\1'), q8(34 * 2, '\2');
  for (const uint32_t version : {2, 3}) {
    const std::string file = Small()
                                 .Version(version)
                                 .Strings("names", {"a", "", "ccc"})
                                 .Tensor("x", {3, 2}, 0, f32)
                                 .Tensor("y", {32, 1, 2}, 8, q8)
                                 .Build();
    const Result<GgufHeader> header = ParseGgufHeader(BytesOf(file));
    ASSERT_TRUE(header.ok()) << header.status();
    ASSERT_EQ(header->metadata.size(), 3u);
    EXPECT_EQ(header->metadata[0].first, "general.architecture");
    EXPECT_EQ(header->metadata[0].second.bytes, "llama");
    EXPECT_EQ(header->metadata[2].second.count, 3u);
    ASSERT_EQ(header->tensors.size(), 2u);
    EXPECT_EQ(header->tensors[0].cols, 3);
    EXPECT_EQ(header->tensors[0].rows, 2);
    EXPECT_EQ(header->tensors[1].type, DType::kQ8_0);
    EXPECT_EQ(header->tensors[1].rows, 2);
    EXPECT_EQ(std::string(header->tensors[0].bytes.begin(), header->tensors[0].bytes.end()), f32);
    EXPECT_EQ(std::string(header->tensors[1].bytes.begin(), header->tensors[1].bytes.end()), q8);
  }
}

TEST(GgufHeader, EveryShorterFileIsRefused) {
  const std::string file = Small()
                               .Strings("tokens", {"ab", "c"})
                               .Array<int32_t>("types", 5, {1, 2, 3})
                               .Tensor("x", {3, 2}, 0, std::string(24, 'x'))
                               .Build();
  const std::string whole = file.substr(0, file.size() - 8);  // without the last tensor's padding
  ASSERT_EQ(Refusal(whole), "loaded");
  for (size_t size = 0; size < whole.size(); size++) {
    const std::string message = Refusal(whole.substr(0, size));
    EXPECT_NE(message, "loaded") << "cut to " << size << " bytes";
  }
  EXPECT_THAT(Refusal(whole.substr(0, whole.size() - 1)),
              AllOf(HasSubstr("'x'"), HasSubstr("incomplete")));
}

TEST(GgufHeader, AbsurdCountsAreRefusedBeforeAnythingIsAllocated) {
  for (const uint64_t count : {~uint64_t{0}, uint64_t{1} << 40, uint64_t{1} << 31}) {
    EXPECT_THAT(Refusal(Small().TensorCount(count)), HasSubstr(std::to_string(count) + " tensors"));
    EXPECT_THAT(Refusal(Small().KeyCount(count)),
                HasSubstr(std::to_string(count) + " metadata keys"));
  }
  EXPECT_THAT(Refusal(Small().KeyCount(3)), HasSubstr("3"));
  EXPECT_THAT(Refusal(Small().TensorCount(100'000'000).Build() + std::string(1 << 20, '\0')),
              HasSubstr("100000000 tensors"));
}

TEST(GgufHeader, AbsurdLengthsAreRefused) {
  const std::string file = Small().Build();
  for (const uint64_t length : {uint64_t{1} << 63, uint64_t{1} << 32, uint64_t{4096}}) {
    GgufBuilder key;
    key.RawTensor("").TensorCount(0).KeyCount(1);
    EXPECT_THAT(Refusal(key.Build() + Raw(length) + "key" + std::string(24, 'x')),
                AllOf(HasSubstr("metadata key 1"), HasSubstr(std::to_string(length))));
    EXPECT_THAT(Refusal(Small().RawKey("text", 8, Raw(length) + "abc")),
                AllOf(HasSubstr("'text'"), HasSubstr(std::to_string(length))));
    for (const uint32_t type : {0, 5, 8, 10}) {
      EXPECT_THAT(Refusal(Small().RawKey("list", 9, Raw(type) + Raw(length) + "abc")),
                  AllOf(HasSubstr("'list'"), HasSubstr(std::to_string(length))));
    }
    EXPECT_THAT(Refusal(Small().RawKey(
                    "list", 9,
                    Raw<uint32_t>(8) + Raw<uint64_t>(2) + RawString("ok") + Raw(length) + "abc")),
                AllOf(HasSubstr("'list'"), HasSubstr("element 1")));
  }
}

TEST(GgufHeader, KeysMustBeTextAndDiffer) {
  EXPECT_THAT(Refusal(Small().U32("", 1)), HasSubstr("metadata key 3 is empty"));
  EXPECT_THAT(Refusal(Small().U32("llama.block_count", 2)),
              AllOf(HasSubstr("'llama.block_count'"), HasSubstr("twice")));
  EXPECT_THAT(Refusal(Small().U32(std::string_view("a\0b", 3), 2)), HasSubstr("\"a\\000b\""));
  EXPECT_THAT(Refusal(Small().U32("a\xff", 2)), HasSubstr("not text"));
  EXPECT_THAT(Refusal(Small().U32(std::string(70'000, 'k'), 2)), HasSubstr("70000"));
}

TEST(GgufHeader, UnknownValueTypesAndNestedArraysAreRefused) {
  EXPECT_THAT(Refusal(Small().RawKey("k", 13, Raw<uint32_t>(0))),
              AllOf(HasSubstr("'k'"), HasSubstr("13")));
  EXPECT_THAT(Refusal(Small().RawKey("k", 9, Raw<uint32_t>(77) + Raw<uint64_t>(0))),
              AllOf(HasSubstr("'k'"), HasSubstr("77")));
  std::string deep;
  for (int i = 0; i < 10'000; i++) deep += Raw<uint32_t>(9) + Raw<uint64_t>(1);
  EXPECT_THAT(Refusal(Small().RawKey("k", 9, deep)),
              AllOf(HasSubstr("'k'"), HasSubstr("array of arrays")));
}

TEST(GgufHeader, Alignment) {
  const std::string data(24, 'x');
  for (const uint32_t good : {8u, 64u, 4096u}) {
    EXPECT_EQ(Refusal(Small()
                          .Alignment(good)
                          .U32("general.alignment", good)
                          .Tensor("x", {6}, 0, data)
                          .Tensor("y", {6}, 0, data)),
              "loaded");
  }
  for (const uint32_t bad : {0u, 1u, 4u, 24u, 33u, 1u << 31, ~0u}) {
    EXPECT_THAT(Refusal(Small().U32("general.alignment", bad).Tensor("x", {6}, 0, data)),
                AllOf(HasSubstr("'general.alignment'"), HasSubstr(std::to_string(bad))));
  }
  EXPECT_THAT(Refusal(Small().String("general.alignment", "32")), HasSubstr("'general.alignment'"));
  EXPECT_THAT(Refusal(Small().Tensor("x", {2}, 0, data, 8)),
              AllOf(HasSubstr("'x'"), HasSubstr("multiple")));
}

TEST(GgufHeader, TensorShapes) {
  const std::string data(64, 'x');
  const uint64_t big = uint64_t{1} << 32;
  EXPECT_THAT(Refusal(Small().Tensor("x", {}, 0, data)),
              AllOf(HasSubstr("'x'"), HasSubstr("0 dimensions")));
  EXPECT_THAT(Refusal(Small().Tensor("x", {1, 1, 1, 1, 1}, 0, data)),
              AllOf(HasSubstr("'x'"), HasSubstr("5 dimensions")));
  EXPECT_THAT(Refusal(Small().RawTensor(RawString("x") + Raw(1u << 31) + data)),
              AllOf(HasSubstr("'x'"), HasSubstr("2147483648 dimensions")));
  EXPECT_THAT(Refusal(Small().Tensor("x", {0, 4}, 0, data)),
              AllOf(HasSubstr("dimension 0"), HasSubstr("'x'")));
  EXPECT_THAT(Refusal(Small().Tensor("x", {4, 0}, 0, data)),
              AllOf(HasSubstr("dimension 1"), HasSubstr("'x'")));
  EXPECT_THAT(Refusal(Small().Tensor("x", {~uint64_t{0}}, 0, data)),
              HasSubstr("18446744073709551615"));
  EXPECT_THAT(Refusal(Small().Tensor("x", {big, big}, 0, data)), HasSubstr("2^63"));
  EXPECT_THAT(Refusal(Small().Tensor("x", {big, big / 4}, 0, data)),
              AllOf(HasSubstr("'x'"), HasSubstr("past the end")));
  EXPECT_THAT(Refusal(Small().Tensor("x", {uint64_t{1} << 62}, 0, data)),
              HasSubstr("past the end"));
  EXPECT_THAT(Refusal(Small().Tensor("x", {48}, 2, data)),
              AllOf(HasSubstr("'x'"), HasSubstr("48"), HasSubstr("Q4_0")));
  EXPECT_THAT(Refusal(Small().Tensor("x", {32, 2}, 12, data)), HasSubstr("256"));
}

TEST(GgufHeader, TensorTypesOfOtherProgramsAreNamed) {
  for (const uint32_t type : {4u, 5u, 10u, 39u, 255u, 1u << 31}) {
    EXPECT_THAT(
        Refusal(Small().Tensor("odd", {256}, type, std::string(1024, 'x'))),
        AllOf(HasSubstr("'odd'"), HasSubstr("type " + std::to_string(type)), HasSubstr("newer")));
  }
  EXPECT_THAT(Refusal(Small().Tensor("odd", {256}, 39, std::string(1024, 'x'))),
              HasSubstr("(MXFP4)"));
}

TEST(GgufHeader, TensorNames) {
  const std::string data(16, 'x');
  EXPECT_EQ(Refusal(Small().Tensor(std::string(64, 'n'), {4}, 0, data)), "loaded");
  EXPECT_EQ(Refusal(Small().Tensor("../../etc/x", {4}, 0, data)),
            "loaded");  // never used as a path
  for (const size_t size : {0, 65, 10'000}) {
    EXPECT_THAT(Refusal(Small().Tensor(std::string(size, 'n'), {4}, 0, data)),
                AllOf(HasSubstr("name of tensor 1"), HasSubstr(std::to_string(size))));
  }
  EXPECT_THAT(Refusal(Small().Tensor(std::string_view("a\0b", 3), {4}, 0, data)),
              HasSubstr("not text"));
  EXPECT_THAT(Refusal(Small().Tensor("x", {4}, 0, data).Tensor("x", {4}, 0, data)),
              AllOf(HasSubstr("'x'"), HasSubstr("duplicate")));
}

TEST(GgufHeader, TensorBytesMustLieInTheFileAndBeTheirOwn) {
  const std::string data(64, 'x');
  EXPECT_THAT(Refusal(Small().Tensor("x", {16}, 0, data, 1 << 20)),
              AllOf(HasSubstr("'x'"), HasSubstr("past the end")));
  EXPECT_THAT(Refusal(Small().Tensor("x", {16}, 0, data, ~uint64_t{31})),
              HasSubstr("past the end"));
  EXPECT_THAT(Refusal(Small().Tensor("x", {16}, 0, data).Tensor("y", {16}, 0, data, 32)),
              AllOf(HasSubstr("'x'"), HasSubstr("'y'"), HasSubstr("overlap")));
  EXPECT_EQ(Refusal(Small().Tensor("x", {8}, 0, data).Tensor("y", {8}, 0, data, 32)), "loaded");
}

TEST(GgufHeader, VersionsAndByteOrder) {
  EXPECT_THAT(Refusal(Small().Version(0x03000000)),
              AllOf(HasSubstr("big-endian"), HasSubstr("version 3")));
  EXPECT_THAT(Refusal(Small().Version(0)), HasSubstr("version is 0"));
  EXPECT_THAT(Refusal(Small().Version(1)), HasSubstr("version 1"));
  EXPECT_THAT(Refusal(Small().Version(4)), AllOf(HasSubstr("version 4"), HasSubstr("newer")));
  EXPECT_THAT(Refusal(Small().Version(1u << 31)), HasSubstr("version"));
}

TEST(GgufHeader, ForeignFilesAreNamed) {
  const std::string rest = Small().Build().substr(4);
  const std::pair<std::string, const char*> cases[] = {
      {"GGML" + rest, "old ggml"},
      {"GGJT" + rest, "GGJT"},
      {"tjgg" + rest, "GGJT"},
      {"lmgg" + rest, "old ggml"},
      {"FUGG" + rest, "byte-swapped"},
      {std::string("PK\3\4", 4) + std::string(100, '\0'), "zip archive or a PyTorch"},
      {"\x80\x02}q\1", "pickled PyTorch"},
      {"<!DOCTYPE html><html>", "web page"},
      {"\r\n  <HTML><body>", "web page"},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>", "XML"},
      {"{\"error\":\"Repository not found\"}", "JSON"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git-LFS pointer"},
      {Raw<uint64_t>(16) + "{\"x\":{}}        ", "safetensors"},
      {"\x1f\x8b\x08", "gzip"},
      {"#!/bin/sh\n", "script"},
      {"hello", "text file"},
      {"GGU", "text file"},
      {std::string(600, '\0'), "zeros"},
      {"", "empty"},
      {"\x01\x02\x03\x04\x05", "01 02 03 04"},
  };
  for (const auto& [file, kind] : cases) {
    EXPECT_THAT(Refusal(file), HasSubstr(kind));
    if (!file.empty() && file[0] != '\0') {
      EXPECT_THAT(Refusal(file), HasSubstr("not a GGUF file"));
    }
  }
}

TEST(GgufHeader, NamesInMessagesAreEscapedAndShortened) {
  EXPECT_EQ(EscapeForMessage("plain"), "plain");
  EXPECT_EQ(EscapeForMessage("a\nb\x1b[2J"), "a\\nb\\033[2J");
  EXPECT_EQ(EscapeForMessage("\xff"), "\\377");
  EXPECT_LT(EscapeForMessage(std::string(100'000, 'x')).size(), 100u);
}

}  // namespace
}  // namespace staffel
