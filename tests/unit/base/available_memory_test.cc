#include "base/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace staffel {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMiB = 1 << 20;

// A tree with /proc and /sys files as the kernel shows them.
class MemoryTest : public ::testing::Test {
 protected:
  MemoryTest() {
    std::string pattern = (fs::temp_directory_path() / "staffel-memory-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    Write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable:    4194304 kB\nCached: 1 kB\n");
  }
  ~MemoryTest() override { fs::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  int64_t Available() const { return AvailableMemoryBytes(root_.string()); }

  fs::path root_;
};

TEST_F(MemoryTest, WithoutLimitsTheSystemsOwn) { EXPECT_EQ(Available(), 4096 * kMiB); }

TEST_F(MemoryTest, AnyCgroupAboveMayBeTheTightest) {
  Write("proc/self/cgroup", "0::/system.slice/staffel.service\n");
  Write("sys/fs/cgroup/system.slice/staffel.service/memory.max", "max\n");
  Write("sys/fs/cgroup/system.slice/staffel.service/memory.current", "1048576\n");
  EXPECT_EQ(Available(), 4096 * kMiB);
  Write("sys/fs/cgroup/system.slice/memory.max", "1073741824\n");
  Write("sys/fs/cgroup/system.slice/memory.current", "536870912\n");
  EXPECT_EQ(Available(), 512 * kMiB);
  Write("sys/fs/cgroup/system.slice/memory.stat",
        "anon 1\ninactive_file 104857600\nactive_file 1048576\n");
  EXPECT_EQ(Available(), 613 * kMiB);
  Write("sys/fs/cgroup/memory.max", "2097152\n");
  Write("sys/fs/cgroup/memory.current", "9999999\n");
  EXPECT_EQ(Available(), 0);
}

TEST_F(MemoryTest, AContainersPathMayLieOutsideOfItsMount) {
  Write("proc/self/cgroup", "0::/../../docker/abc\n");
  Write("sys/fs/cgroup/memory.max", "1073741824\n");
  Write("sys/fs/cgroup/memory.current", "0\n");
  EXPECT_EQ(Available(), 1024 * kMiB);
}

TEST_F(MemoryTest, CgroupVersion1) {
  Write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n");
  Write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1073741824\n");
  Write("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "73741824\n");
  EXPECT_EQ(Available(), 1'000'000'000);
}

TEST_F(MemoryTest, PoolIsOfTheLimitThatBinds) {
  const auto pool = [&] { return AvailableMemory(root_.string()).pool; };
  EXPECT_EQ(pool(), "") << "of no kernel that is known";
  Write("proc/sys/kernel/random/boot_id", "0b0e\n");
  EXPECT_EQ(pool(), "0b0e");
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/memory.max", "1073741824\n");
  Write("sys/fs/cgroup/a/memory.current", "0\n");
  const std::string group = pool();
  EXPECT_TRUE(group.starts_with("0b0e/cgroup-")) << group;
  Write("proc/self/cgroup", "0::/a/c\n");
  EXPECT_EQ(pool(), group) << "the limit above both";
  Write("sys/fs/cgroup/a/c/memory.max", "1048576\n");
  Write("sys/fs/cgroup/a/c/memory.current", "0\n");
  EXPECT_NE(pool(), group);
}

TEST(Memory, OfThisMachine) { EXPECT_GT(AvailableMemoryBytes(), 16 * kMiB); }

}  // namespace
}  // namespace staffel
