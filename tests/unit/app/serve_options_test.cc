#include "app/serve_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace staffel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ServeOptions Good() {
  ServeOptions options;
  options.model = "m.gguf";
  return options;
}

std::string Refusal(ServeOptions options) {
  const Status status = FinishServeOptions(&options);
  return status.ok() ? "ok" : std::string(status.message());
}

TEST(ServeOptions, DefaultsAreInTheirOwnRanges) {
  ServeOptions options;
  const OptionList list = ServeOptionList(&options);
  for (const Option& option : list.options()) {
    if (option.repeatable || option.default_text.empty()) continue;
    EXPECT_TRUE(option.set(option.default_text).ok()) << option.name << " " << option.default_text;
  }
  EXPECT_EQ(Refusal(Good()), "ok");
}

TEST(ServeOptions, WhatDoesNotGoTogetherIsNamed) {
  ServeOptions options;
  EXPECT_THAT(Refusal(options), HasSubstr("no model"));
  options = Good();
  options.block_size = 24;
  EXPECT_THAT(Refusal(options), AllOf(HasSubstr("--block-size"), HasSubstr("24")));
  options = Good();
  options.prefill_chunk = 513;
  EXPECT_THAT(Refusal(options),
              AllOf(HasSubstr("513"), HasSubstr("--max-num-batched-tokens (512)")));
  options = Good();
  options.max_num_seqs = 500;
  EXPECT_THAT(Refusal(options), AllOf(HasSubstr("--max-num-batched-tokens is 512"),
                                      HasSubstr("--max-num-seqs (500)")));
  options = Good();
  options.kv_blocks = 1, options.kv_memory = 1;
  EXPECT_THAT(Refusal(options), AllOf(HasSubstr("--kv-blocks"), HasSubstr("--kv-memory")));
}

TEST(ServeOptions, KeysComeFromAFile) {
  const std::string path = std::filesystem::temp_directory_path() / "staffel-keys-test";
  ServeOptions options = Good();
  options.api_keys = {"flag"};
  options.api_key_file = path;
  std::ofstream(path) << "# keys\n\n  one  \ntwo\n";
  ASSERT_TRUE(FinishServeOptions(&options).ok());
  EXPECT_THAT(options.api_keys, ElementsAre("flag", "one", "two"));
  std::ofstream(path) << "# none\n";
  EXPECT_THAT(Refusal(options), HasSubstr("no key"));
  std::filesystem::remove(path);
  EXPECT_THAT(Refusal(options), AllOf(HasSubstr("--api-key-file"), HasSubstr(path)));
}

TEST(ServeOptions, AnEmptyKeyIsRefusedAndNotAnOpenServer) {
  ServeOptions options;
  const OptionList list = ServeOptionList(&options);
  EXPECT_FALSE(list.Find("api-key")->set("").ok());
}

TEST(ServeOptions, TheDocumentationIsUpToDate) {
  std::ifstream in(STAFFEL_DOCS "/configuration.md");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(text, ConfigurationMarkdown())
      << "run: build/staffel options --markdown > docs/configuration.md";
}

}  // namespace
}  // namespace staffel
