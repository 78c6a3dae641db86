#include "app/worker_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "base/strings.h"

namespace staffel {
namespace {

class WorkerNameTest : public ::testing::Test {
 protected:
  WorkerNameTest() { std::filesystem::remove_all(folder_); }
  ~WorkerNameTest() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ =
      StrCat(std::filesystem::temp_directory_path().string(), "/worker-name-", getpid());
};

TEST_F(WorkerNameTest, IsTheSameAfterARestart) {
  std::string first;
  {
    const WorkerName name(folder_ + "/deep/cache");
    first = name.text();
  }
  EXPECT_THAT(first, ::testing::MatchesRegex(".*-[0-9a-f]{8}"));
  EXPECT_EQ(WorkerName(folder_ + "/deep/cache").text(), first);
  EXPECT_NE(WorkerName(folder_ + "/other").text(), first);
}

TEST_F(WorkerNameTest, WorkersThatShareAFolderHaveNamesOfTheirOwn) {
  auto a = std::make_unique<WorkerName>(folder_);
  const WorkerName b(folder_);
  EXPECT_NE(a->text(), b.text());
  const std::string first = a->text();
  a = nullptr;
  const WorkerName back(folder_), c(folder_);
  EXPECT_EQ(back.text(), first);
  EXPECT_NE(c.text(), first);
  EXPECT_NE(c.text(), b.text());
}

TEST_F(WorkerNameTest, DamagedFileIsWrittenAnew) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/worker-0.name") << "\xff";
  const std::string first = WorkerName(folder_).text();
  EXPECT_THAT(first, ::testing::MatchesRegex(".*-[0-9a-f]{8}"));
  EXPECT_EQ(WorkerName(folder_).text(), first);
}

TEST_F(WorkerNameTest, WithoutAFolderItHasTheProcess) {
  for (const char* folder : {"", "/proc/nowhere"}) {
    EXPECT_THAT(WorkerName(folder).text(), ::testing::HasSubstr(StrCat("-", getpid(), "-")));
  }
}

}  // namespace
}  // namespace staffel
