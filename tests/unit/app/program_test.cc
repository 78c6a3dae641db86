// The program from outside: exit codes and messages.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/gguf_builder.h"
#include "tests/support/subprocess.h"

namespace staffel {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RunProgram;
using testing::RunResult;
using ::testing::StartsWith;
using testing::WriteFile;

RunResult Staffel(std::vector<std::string> args, const std::vector<std::string>& environment = {}) {
  args.insert(args.begin(), STAFFEL_BINARY);
  return RunProgram(args, environment);
}

TEST(Program, HelpAndVersion) {
  for (const char* flag : {"--help", "-h", "help"}) {
    const RunResult result = Staffel({flag});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.output, AllOf(HasSubstr("inspect"), HasSubstr("options")));
  }
  const RunResult version = Staffel({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.output,
              AllOf(StartsWith("staffel 0."), HasSubstr("Boost"), HasSubstr("devices")));
  EXPECT_EQ(Staffel({}).exit_code, 2);
}

TEST(Program, UnknownCommands) {
  const RunResult result = Staffel({"inspekt"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.output, "staffel: unknown command 'inspekt'; did you mean `staffel inspect`?\n");
  EXPECT_EQ(Staffel({"zzz"}).exit_code, 2);
}

TEST(Program, OptionsAreListed) {
  EXPECT_THAT(Staffel({"options"}).output, HasSubstr("--max-model-len TOKENS"));
  EXPECT_THAT(Staffel({"options", "--markdown"}).output, StartsWith("# Configuration\n"));
  EXPECT_EQ(Staffel({"options", "--nonsense"}).exit_code, 2);
}

TEST(Serve, WrongUsageEndsWithExitCode2AndNamesThePlace) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"serve"}, "no model is given"},
      {{"serve", "m.gguf", "--port", "70000"}, "--port is 70000; it must be from 0 to 65535"},
      {{"serve", "m.gguf", "--port", "-1"}, "--port is -1"},
      {{"serve", "m.gguf", "--port", "abc"}, "--port is \"abc\""},
      {{"serve", "m.gguf", "--prot", "1"}, "unknown flag --prot; did you mean --port?"},
      {{"serve", "m.gguf", "--api-key", ""}, "--api-key is empty"},
      {{"serve", "m.gguf", "--kv-memory", "lots"}, "--kv-memory is \"lots\""},
  };
  for (const auto& [args, says] : cases) {
    const RunResult result = Staffel(args);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_THAT(result.output, AllOf(StartsWith("staffel: "), HasSubstr(says)));
    EXPECT_LT(result.seconds, 2);
  }
  const RunResult variable = Staffel({"serve", "m.gguf"}, {"STAFFEL_PROT=1"});
  EXPECT_EQ(variable.exit_code, 2);
  EXPECT_THAT(variable.output, HasSubstr("did you mean STAFFEL_PORT?"));
}

TEST(Serve, HelpNamesEveryOption) {
  const RunResult result = Staffel({"serve", "--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("--max-model-len"), HasSubstr("STAFFEL_MAX_QUEUE")));
}

TEST(Serve, AMissingModelAndABusyPortEndAtOnceWithExitCode1) {
  const RunResult missing =
      Staffel({"serve", "/nonexistent/m.gguf", "--host", "127.0.0.1", "--port", "0"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.output, AllOf(HasSubstr("/nonexistent/m.gguf"), HasSubstr("no such file")));
  EXPECT_LT(missing.seconds, 2);

  const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(taken, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  ASSERT_EQ(getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  // The port comes first: it is named although the model does not exist either.
  const RunResult busy =
      Staffel({"serve", "/nonexistent/m.gguf", "--host", "127.0.0.1", "--port", port});
  EXPECT_EQ(busy.exit_code, 1);
  EXPECT_THAT(busy.output, HasSubstr("127.0.0.1:" + port));
  EXPECT_LT(busy.seconds, 2);
  close(taken);
}

TEST(Serve, ErrorsAreJsonWhereTheLogIs) {
  const RunResult result = Staffel({"serve", "/nonexistent/m.gguf", "--host", "127.0.0.1", "--port",
                                    "0", "--log-format", "json"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, AllOf(StartsWith("{\"time\":"), HasSubstr("\"level\":\"critical\""),
                                   Not(HasSubstr("\nstaffel:"))));
}

class InspectTest : public ::testing::Test {
 protected:
  InspectTest() {
    std::string pattern = (fs::temp_directory_path() / "staffel-inspect-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~InspectTest() override { fs::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  fs::path folder_;
};

TEST_F(InspectTest, AnUnknownArchitectureIsShownButNotServed) {
  WriteFile(Path("m.gguf"), GgufBuilder()
                                .String("general.architecture", "mamba")
                                .String("general.name", "a\x1b[2Jb")
                                .Tensor("x", {256, 2}, 12, std::string(288, 'x'))
                                .Build());
  const RunResult result = Staffel({"inspect", Path("m.gguf"), "--tensors"});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("can be served   no: "), HasSubstr("mamba"),
                    HasSubstr("Q4_K 288 B in 1"), HasSubstr("2 x 256"), Not(HasSubstr("\x1b"))));
}

TEST_F(InspectTest, BadFilesEndWithOneSentence) {
  WriteFile(Path("cut.gguf"), GgufBuilder().Tensor("x", {256}, 0, "short").Build());
  WriteFile(Path("page.gguf"), "<!DOCTYPE html><html>");
  ASSERT_EQ(mkfifo(Path("fifo.gguf").c_str(), 0600), 0);
  const std::pair<const char*, const char*> cases[] = {{"cut.gguf", "'x'"},
                                                       {"page.gguf", "web page"},
                                                       {"fifo.gguf", "FIFO"},
                                                       {"absent.gguf", "no such file"},
                                                       {".", "folder"}};
  for (const auto& [name, says] : cases) {
    const RunResult result = Staffel({"inspect", Path(name)});
    EXPECT_EQ(result.exit_code, 1) << name;
    EXPECT_THAT(result.output, AllOf(StartsWith("staffel: cannot load "), HasSubstr(says)));
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1);
    EXPECT_LT(result.seconds, 2);
  }
  EXPECT_EQ(Staffel({"inspect"}).exit_code, 2);
  EXPECT_EQ(Staffel({"inspect", "a", "b"}).exit_code, 2);
}

}  // namespace
}  // namespace staffel
