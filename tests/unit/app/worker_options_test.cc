#include "app/worker_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "app/option_sources.h"

namespace staffel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Result<WorkerOptions> Read(std::vector<std::string> args) {
  WorkerOptions options;
  const OptionList list = WorkerOptionList(&options);
  const char* const nothing[] = {nullptr};
  STAFFEL_RETURN_IF_ERROR(LoadOptions(list, "", std::move(args), nothing).status());
  STAFFEL_RETURN_IF_ERROR(FinishWorkerOptions(&options));
  return options;
}

std::string Refusal(std::vector<std::string> args) {
  const Result<WorkerOptions> options = Read(std::move(args));
  return options.ok() ? "accepted" : std::string(options.status().message());
}

TEST(WorkerOptions, AMasterIsAllThatMustBeGiven) {
  const Result<WorkerOptions> options = Read({"--master", "gpu-1:7100"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->master, "gpu-1:7100");
  EXPECT_EQ(options->memory, 0);
  EXPECT_THAT(Refusal({}), HasSubstr("--master HOST:PORT"));
}

TEST(WorkerOptions, LabelsAndSpeedAreChecked) {
  const Result<WorkerOptions> options =
      Read({"--master", "m:1", "--label", "zone=a", "--label", "kind=vision=2", "--speed", "1.5"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(ParsedLabels(*options), ElementsAre(Pair("kind", "vision=2"), Pair("zone", "a")));
  EXPECT_THAT(Refusal({"--master", "m:1", "--label", "zone"}), HasSubstr("key=value"));
  EXPECT_THAT(Refusal({"--master", "m:1", "--label", "=x"}), HasSubstr("key=value"));
  for (const char* speed : {"fast", "0", "-1", "1e9", "nan", "1x"}) {
    EXPECT_THAT(Refusal({"--master", "m:1", "--speed", speed}), HasSubstr("--speed")) << speed;
  }
}

TEST(WorkerOptions, TheTokenMayStandInAFile) {
  const std::string path = ::testing::TempDir() + "/worker-token";
  std::ofstream(path) << "  secret \nmore\n";
  const Result<WorkerOptions> options = Read({"--master", "m:1", "--token-file", path});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->token, "secret");
  EXPECT_THAT(Refusal({"--master", "m:1", "--token-file", path, "--token", "x"}),
              HasSubstr("use one of them"));
  std::remove(path.c_str());
  EXPECT_THAT(Refusal({"--master", "m:1", "--token-file", path}), HasSubstr(path));
  EXPECT_THAT(Refusal({"--master", "m:1", "--tls-cert", "c.pem"}), HasSubstr("--tls-key"));
}

}  // namespace
}  // namespace staffel
