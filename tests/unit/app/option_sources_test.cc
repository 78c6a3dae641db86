// Flags, variables and files: what each accepts, what wins, and what each error says.
#include "app/option_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace staffel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Args = std::vector<std::string>;

struct Settings {
  std::string model, config, host = "0.0.0.0";
  int port = 8000;
  int length = 0;
  bool caching = true;
  std::vector<std::string> keys = {"default"};
};

class OptionSourcesTest : public ::testing::Test {
 protected:
  OptionSourcesTest() {
    list_.BeginGroup("All");
    list_.Text("model", "FILE", &s_.model, "model");
    list_.Text("config", "FILE", &s_.config, "file");
    list_.Text("host", "ADDRESS", &s_.host, "address");
    list_.Integer("port", "PORT", &s_.port, 0, 65535, "port");
    list_.Integer("max-model-len", "TOKENS", &s_.length, 0, 1000, "length");
    list_.Switch("enable-prefix-caching", &s_.caching, "reuse");
    list_.Texts("api-key", "KEY", &s_.keys, "key");
    char name[] = "/tmp/staffel-options-XXXXXX";
    const int fd = mkstemp(name);
    close(fd);
    file_ = name;
  }
  ~OptionSourcesTest() override { std::filesystem::remove(file_); }

  // "ok", "help", or the message.
  std::string Load(Args args, std::vector<const char*> environment = {}) {
    environment.push_back(nullptr);
    const Result<bool> help = LoadOptions(list_, "model", std::move(args), environment.data());
    if (!help.ok()) return std::string(help.status().message());
    return *help ? "help" : "ok";
  }
  void WriteConfig(const std::string& text) { std::ofstream(file_) << text; }
  std::string LoadConfig(const std::string& text) {
    WriteConfig(text);
    return Load({"--config", file_});
  }

  Settings s_;
  OptionList list_;
  std::string file_;
};

TEST_F(OptionSourcesTest, FlagsInEveryForm) {
  EXPECT_EQ(Load({"m.gguf", "--port", "1", "--host=[::1]", "--no-enable-prefix-caching"}), "ok");
  EXPECT_EQ(s_.model, "m.gguf");
  EXPECT_EQ(s_.port, 1);
  EXPECT_EQ(s_.host, "[::1]");
  EXPECT_FALSE(s_.caching);
  EXPECT_EQ(Load({"--enable-prefix-caching", "--host", "[::1]", "n.gguf"}), "ok");
  EXPECT_TRUE(s_.caching);
  EXPECT_EQ(s_.host, "[::1]");
  EXPECT_EQ(s_.model, "n.gguf");
  EXPECT_EQ(Load({"--enable-prefix-caching=false"}), "ok");
  EXPECT_FALSE(s_.caching);
  EXPECT_EQ(Load({"--model", "x", "--port", "2", "--port", "3"}), "ok");
  EXPECT_EQ(s_.port, 3);  // the last one
}

TEST_F(OptionSourcesTest, RepeatedFlagsAddUpAndReplaceTheDefault) {
  EXPECT_EQ(Load({"--api-key", "a", "--api-key", "b", "model"}), "ok");
  EXPECT_THAT(s_.keys, ElementsAre("a", "b"));
  EXPECT_EQ(s_.model, "model");
  EXPECT_EQ(Load({"--api-key", ""}), "ok");
  EXPECT_THAT(s_.keys, ElementsAre(""));
  EXPECT_EQ(Load({"--api-key", "-starts-with-dash"}), "ok");
  EXPECT_THAT(s_.keys, ElementsAre("-starts-with-dash"));
}

TEST_F(OptionSourcesTest, BadFlagsNameFlagValueAndRange) {
  EXPECT_EQ(Load({"--port", "70000"}), "--port is 70000; it must be from 0 to 65535");
  EXPECT_EQ(Load({"--port", "-1"}), "--port is -1; it must be from 0 to 65535");
  EXPECT_THAT(Load({"--port", "abc"}),
              AllOf(HasSubstr("--port is \"abc\""), HasSubstr("whole number")));
  EXPECT_THAT(Load({"--port"}), HasSubstr("--port"));
  EXPECT_THAT(Load({"--port="}), HasSubstr("--port"));
  EXPECT_EQ(Load({"--prot", "1"}), "unknown flag --prot; did you mean --port?");
  EXPECT_EQ(Load({"--prot=1"}), "unknown flag --prot; did you mean --port?");
  EXPECT_EQ(Load({"--max_model_len", "5"}),
            "unknown flag --max_model_len; did you mean --max-model-len?");
  EXPECT_THAT(Load({"-p", "1"}), HasSubstr("unknown flag -p"));
  EXPECT_THAT(Load({"a.gguf", "b.gguf"}), HasSubstr("unexpected argument 'b.gguf'"));
  EXPECT_THAT(Load({"--enable-prefix-caching=maybe"}), HasSubstr("enable-prefix-caching"));
}

TEST_F(OptionSourcesTest, HelpIsFoundAmongOtherArguments) {
  EXPECT_EQ(Load({"--help"}), "help");
  EXPECT_EQ(Load({"m.gguf", "-h", "--port", "70000"}), "help");
}

TEST_F(OptionSourcesTest, Variables) {
  EXPECT_EQ(
      Load({}, {"STAFFEL_PORT=7", "STAFFEL_MAX_MODEL_LEN=9", "STAFFEL_ENABLE_PREFIX_CACHING=off",
                "STAFFEL_API_KEY=k", "HOME=/", "STAFFEL=binary"}),
      "ok");
  EXPECT_EQ(s_.port, 7);
  EXPECT_EQ(s_.length, 9);
  EXPECT_FALSE(s_.caching);
  EXPECT_THAT(s_.keys, ElementsAre("k"));
  EXPECT_EQ(Load({}, {"STAFFEL_PORT=70000"}), "STAFFEL_PORT is 70000; it must be from 0 to 65535");
  EXPECT_EQ(Load({}, {"STAFFEL_PROT=1"}),
            "unknown environment variable STAFFEL_PROT; did you mean STAFFEL_PORT?");
}

TEST_F(OptionSourcesTest, ServiceLinksAndTestVariablesArePassedOver) {
  EXPECT_EQ(Load({}, {"STAFFEL_PORT=tcp://10.0.0.1:8000", "STAFFEL_SERVICE_HOST=10.0.0.1",
                      "STAFFEL_SERVICE_PORT=8000", "STAFFEL_SERVICE_PORT_HTTP=8000",
                      "STAFFEL_PORT_8000_TCP=tcp://10.0.0.1:8000",
                      "STAFFEL_PORT_8000_TCP_PROTO=tcp", "STAFFEL_WEB_SERVICE_HOST=10.0.0.2",
                      "STAFFEL_MODELS=/models", "STAFFEL_SEED=1", "STAFFEL_BINARY=/staffel"}),
            "ok");
  EXPECT_EQ(s_.port, 8000);
}

TEST_F(OptionSourcesTest, TheConfigurationFile) {
  EXPECT_EQ(LoadConfig("# comment\nport: 9\nmax_model_len: 5\nhost: \"::\"\napi-key: [a, b]\n"
                       "enable_prefix_caching: false\nmodel: m.gguf\n"),
            "ok");
  EXPECT_EQ(s_.port, 9);
  EXPECT_EQ(s_.length, 5);
  EXPECT_EQ(s_.host, "::");
  EXPECT_EQ(s_.model, "m.gguf");
  EXPECT_FALSE(s_.caching);
  EXPECT_THAT(s_.keys, ElementsAre("a", "b"));
  EXPECT_EQ(LoadConfig("api_key: single\n"), "ok");
  EXPECT_THAT(s_.keys, ElementsAre("single"));
  EXPECT_EQ(LoadConfig(""), "ok");
  EXPECT_EQ(LoadConfig("# nothing\n"), "ok");
}

TEST_F(OptionSourcesTest, BadFilesNameLineAndKey) {
  EXPECT_THAT(
      LoadConfig("host: x\nprot: 1\n"),
      AllOf(HasSubstr(file_ + " line 2"), HasSubstr("'prot'"), HasSubstr("did you mean 'port'")));
  EXPECT_THAT(LoadConfig("\nport: 70000\n"), HasSubstr(" line 2: port is 70000; it must be"));
  EXPECT_THAT(LoadConfig("port: [1, 2]\n"), HasSubstr("single value"));
  EXPECT_THAT(LoadConfig("port:\n  a: 1\n"), HasSubstr("single value"));
  EXPECT_THAT(LoadConfig("port:\n"), HasSubstr("single value"));
  EXPECT_THAT(LoadConfig("api_key: [[a]]\n"), HasSubstr("plain values"));
  EXPECT_THAT(LoadConfig("port: 1\nport: 2\n"), HasSubstr("twice"));
  EXPECT_THAT(LoadConfig("port: 1\n  bad: {\n"),
              AllOf(HasSubstr("line 2"), HasSubstr("not valid YAML")));
  EXPECT_THAT(LoadConfig("just text\n"), HasSubstr("key: value"));
  EXPECT_THAT(LoadConfig("config: other.yaml\n"), HasSubstr("unknown key 'config'"));
  EXPECT_THAT(LoadConfig(std::string(2 << 20, '#')), HasSubstr("larger"));
  EXPECT_THAT(LoadConfig(std::string(100'000, '[')), HasSubstr("line 1"));
  EXPECT_THAT(Load({"--config", "/nonexistent.yaml"}), HasSubstr("/nonexistent.yaml"));
  EXPECT_THAT(Load({"--config", "/tmp"}), HasSubstr("folder"));
}

TEST_F(OptionSourcesTest, FlagBeatsVariableBeatsFileBeatsDefault) {
  WriteConfig("port: 1\nmax_model_len: 1\nhost: file\napi_key: [file, file2]\n");
  const std::string config = "STAFFEL_CONFIG=" + file_;
  EXPECT_EQ(Load({"--port", "3"}, {config.c_str(), "STAFFEL_PORT=2", "STAFFEL_MAX_MODEL_LEN=2",
                                   "STAFFEL_API_KEY=variable"}),
            "ok");
  EXPECT_EQ(s_.port, 3);
  EXPECT_EQ(s_.length, 2);
  EXPECT_EQ(s_.host, "file");
  EXPECT_TRUE(s_.caching);
  EXPECT_THAT(s_.keys, ElementsAre("variable"));  // a stronger source replaces the list
}

}  // namespace
}  // namespace staffel
