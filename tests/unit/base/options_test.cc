#include "base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace staffel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Color { kRed, kGreen };

struct Settings {
  int port = 8000;
  int length = 0;
  int64_t body = 32 << 20;
  Duration ping = std::chrono::seconds(15);
  bool caching = true;
  std::string host = "0.0.0.0";
  std::vector<std::string> keys;
  Color color = Color::kGreen;
};

OptionList ListOf(Settings* s) {
  OptionList list;
  list.BeginGroup("Server");
  list.Text("host", "ADDRESS", &s->host, "address to listen on");
  list.Integer("port", "PORT", &s->port, 0, 65535, "port to listen on");
  list.Bytes("max-body-bytes", &s->body, 1 << 10, 1 << 30, "largest request");
  list.Time("sse-ping-interval", &s->ping, Duration::zero(), std::chrono::hours(1), "pings",
            "none");
  list.Texts("api-key", "KEY", &s->keys, "accepted key", [](std::string_view text) {
    return text.empty() ? absl::InvalidArgumentError("is empty") : absl::OkStatus();
  });
  list.BeginGroup("Model");
  list.Integer("max-model-len", "TOKENS", &s->length, 0, 1 << 20, "context", "the model's own");
  list.Switch("enable-prefix-caching", &s->caching, "reuse KV");
  list.Choice("color", &s->color, {"red", "green"}, "a | b");
  return list;
}

Status Set(const OptionList& list, const char* name, std::string_view value) {
  return list.Find(name)->set(value);
}

TEST(OptionList, OneNameGivesFlagVariableAndKey) {
  Settings s;
  const OptionList list = ListOf(&s);
  const Option& option = *list.Find("max-model-len");
  EXPECT_EQ(option.flag(), "--max-model-len");
  EXPECT_EQ(option.variable(), "STAFFEL_MAX_MODEL_LEN");
  EXPECT_EQ(option.key(), "max_model_len");
  EXPECT_EQ(option.default_text, "0");
  EXPECT_EQ(list.Find("max_model_len"), nullptr);
}

TEST(OptionList, ValuesArriveInTheirFields) {
  Settings s;
  const OptionList list = ListOf(&s);
  EXPECT_TRUE(Set(list, "port", "1").ok());
  EXPECT_TRUE(Set(list, "host", "::1").ok());
  EXPECT_TRUE(Set(list, "max-body-bytes", "1M").ok());
  EXPECT_TRUE(Set(list, "sse-ping-interval", "0").ok());
  EXPECT_TRUE(Set(list, "enable-prefix-caching", "off").ok());
  EXPECT_TRUE(Set(list, "color", "red").ok());
  EXPECT_TRUE(Set(list, "api-key", "a").ok());
  EXPECT_TRUE(Set(list, "api-key", "b").ok());
  EXPECT_EQ(s.port, 1);
  EXPECT_EQ(s.host, "::1");
  EXPECT_EQ(s.body, 1 << 20);
  EXPECT_EQ(s.ping, Duration::zero());
  EXPECT_FALSE(s.caching);
  EXPECT_EQ(s.color, Color::kRed);
  EXPECT_THAT(s.keys, ElementsAre("a", "b"));
  list.Find("api-key")->clear();
  EXPECT_TRUE(s.keys.empty());
}

TEST(OptionList, ARefusedValueLeavesTheField) {
  Settings s;
  const OptionList list = ListOf(&s);
  EXPECT_EQ(Set(list, "port", "70000").message(), "is 70000; it must be from 0 to 65535");
  EXPECT_EQ(Set(list, "color", "blue").message(), "is \"blue\"; it must be one of red|green");
  EXPECT_EQ(Set(list, "api-key", "").message(), "is empty");
  EXPECT_FALSE(Set(list, "max-body-bytes", "0").ok());
  EXPECT_EQ(s.port, 8000);
  EXPECT_EQ(s.color, Color::kGreen);
  EXPECT_EQ(s.body, 32 << 20);
}

TEST(OptionList, NearestName) {
  Settings s;
  const OptionList list = ListOf(&s);
  EXPECT_EQ(list.Nearest("prot"), "port");
  EXPECT_EQ(list.Nearest("model-len"), "max-model-len");
  EXPECT_EQ(list.Nearest("enable-prefix-cache"), "enable-prefix-caching");
  EXPECT_EQ(list.Nearest("apikey"), "api-key");
  EXPECT_EQ(list.Nearest("zzzzzz"), "");
}

TEST(OptionList, HelpAndMarkdownShowEveryOption) {
  Settings s;
  const OptionList list = ListOf(&s);
  const std::string help = list.Help(), markdown = list.Markdown();
  for (const Option& option : list.options()) {
    EXPECT_THAT(help, HasSubstr(option.is_switch ? "--[no-]" + option.name : option.flag()));
    EXPECT_THAT(markdown, HasSubstr(option.variable()));
  }
  EXPECT_THAT(help, HasSubstr("  --port PORT                     port to listen on [8000]\n"));
  EXPECT_THAT(markdown, HasSubstr("## Model\n"));
  EXPECT_THAT(markdown, HasSubstr("| `--max-model-len TOKENS` | `STAFFEL_MAX_MODEL_LEN` | "
                                  "`max_model_len` | `0` | context; 0: the model's own |"));
  EXPECT_THAT(markdown, HasSubstr("a \\| b"));
  for (size_t at = 0; at < help.size();) {
    const size_t end = help.find('\n', at);
    EXPECT_LE(end - at, 100u) << help.substr(at, end - at);
    at = end + 1;
  }
}

}  // namespace
}  // namespace staffel
