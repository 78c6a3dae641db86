// A cache folder with a limit: which models make room for others, and what is never removed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/strings.h"
#include "source/cache_folder.h"
#include "source/shard_cache.h"
#include "tests/support/seed.h"

namespace staffel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr int64_t kModelBytes = int64_t{2} << 20;
// Of the logs, and of blocks that are larger than we think.
constexpr int64_t kSlack = int64_t{200} << 10;

class CacheLimit : public ::testing::Test {
 protected:
  CacheLimit()
      : folder_(std::filesystem::temp_directory_path() / StrCat("staffel-limit-", getpid())) {
    std::filesystem::remove_all(folder_);
  }
  ~CacheLimit() override { std::filesystem::remove_all(folder_); }

  static std::vector<uint8_t> Bytes(const std::string& digest) {
    std::mt19937_64 random(std::hash<std::string>()(digest));
    std::vector<uint8_t> bytes(kModelBytes);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    return bytes;
  }
  // Of two files.
  std::unique_ptr<ShardCache> Open(const std::string& digest, int64_t limit) {
    Result<std::unique_ptr<ShardCache>> cache =
        ShardCache::Open({.folder = folder_,
                          .digest = digest,
                          .file_bytes = {kModelBytes / 2, kModelBytes / 2},
                          .limit_bytes = limit});
    EXPECT_TRUE(cache.ok()) << cache.status();
    return cache.ok() ? *std::move(cache) : nullptr;
  }
  Result<int64_t> Provide(ShardCache& cache, const std::string& digest,
                          std::vector<ModelRange> ranges = {{0, kModelBytes}}) {
    const std::vector<uint8_t> bytes = Bytes(digest);
    return cache.Provide(
        std::move(ranges),
        [&](absl::Span<const ModelRange> wanted, const ShardCache::Sink& sink) -> Status {
          ++fetches_;
          for (const ModelRange& range : wanted) {
            STAFFEL_RETURN_IF_ERROR(
                sink(absl::MakeConstSpan(bytes).subspan(range.offset, range.size)));
          }
          return absl::OkStatus();
        },
        nullptr, nullptr);
  }
  // Caches a model and forgets it; the time of its use is `age_s` ago.
  void Keep(const std::string& digest, int age_s) {
    ASSERT_TRUE(Provide(*Open(digest, 0), digest).ok());
    std::filesystem::last_write_time(
        StrCat(folder_, "/", digest, ".ranges"),
        std::filesystem::file_time_type::clock::now() - std::chrono::seconds(age_s));
  }
  std::vector<std::string> Kept() const {
    std::vector<std::string> digests;
    for (const CachedModel& model : CachedModels(folder_)) digests.push_back(model.digest);
    return digests;
  }
  int64_t DiskBytes() const {
    int64_t bytes = 0;
    for (const CachedModel& model : CachedModels(folder_)) bytes += model.disk_bytes;
    return bytes;
  }

  const std::string folder_;
  std::atomic<int> fetches_ = 0;
};

TEST_F(CacheLimit, WhatWasNotUsedForLongestMakesRoom) {
  Keep("aa", 100);
  Keep("bb", 300);
  Keep("cc", 200);
  EXPECT_THAT(Kept(), ElementsAre("bb", "cc", "aa"));
  EXPECT_NEAR(static_cast<double>(DiskBytes()), 3 * kModelBytes, kSlack);
  const int64_t limit = 3 * kModelBytes + kSlack;
  ASSERT_TRUE(Provide(*Open("dd", limit), "dd").ok());
  EXPECT_THAT(Kept(), ElementsAre("cc", "aa", "dd"));
  EXPECT_LE(DiskBytes(), limit);
  // A look is a use.
  EXPECT_EQ(*Provide(*Open("cc", limit), "cc"), 0);
  ASSERT_TRUE(Provide(*Open("ee", limit), "ee").ok());
  EXPECT_THAT(Kept(), UnorderedElementsAre("cc", "dd", "ee"));
}

TEST_F(CacheLimit, WhatIsInUseStays) {
  Keep("aa", 300);
  Keep("bb", 200);
  const int64_t limit = 2 * kModelBytes + kSlack;
  const std::unique_ptr<ShardCache> used = Open("aa", limit);
  ASSERT_TRUE(Provide(*Open("cc", limit), "cc").ok());
  EXPECT_THAT(Kept(), UnorderedElementsAre("aa", "cc"));
  // Two are in use: the third must do without.
  const std::unique_ptr<ShardCache> also_used = Open("cc", limit);
  fetches_ = 0;
  const Status refused = Provide(*Open("dd", limit), "dd").status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("may take 4.20 MiB"), HasSubstr("would take 6."),
                    HasSubstr("--cache-limit"), HasSubstr(folder_)));
  EXPECT_EQ(fetches_, 0);
  EXPECT_EQ(*Provide(*Open("aa", limit), "aa"), 0);
  EXPECT_EQ(*Provide(*Open("cc", limit), "cc"), 0);
}

TEST_F(CacheLimit, WhatIsThereIsServedUnderAnyLimit) {
  Keep("aa", 300);
  Keep("bb", 200);
  EXPECT_EQ(*Provide(*Open("aa", 1), "aa"), 0);
  EXPECT_THAT(Kept(), ElementsAre("aa"));
}

TEST_F(CacheLimit, AnotherPartOfTheOwnModelMakesRoom) {
  const std::vector<ModelRange> first = {{0, kModelBytes / 2}},
                                second = {{kModelBytes / 2, kModelBytes / 2}};
  const int64_t limit = kModelBytes / 2 + kSlack;
  ASSERT_TRUE(Provide(*Open("aa", limit), "aa", first).ok());
  {
    // Not while another process may have need of it.
    const std::unique_ptr<ShardCache> other = Open("aa", limit);
    EXPECT_TRUE(absl::IsResourceExhausted(Provide(*Open("aa", limit), "aa", second).status()));
    EXPECT_EQ(*Provide(*other, "aa", first), 0);
  }
  ASSERT_TRUE(Provide(*Open("aa", limit), "aa", second).ok());
  EXPECT_LE(DiskBytes(), limit);
  EXPECT_EQ(*Provide(*Open("aa", limit), "aa", second), 0);
  EXPECT_EQ(*Provide(*Open("aa", 0), "aa", first), kModelBytes / 2);
  EXPECT_EQ(*Provide(*Open("aa", 0), "aa", second), 0);
}

TEST_F(CacheLimit, ForeignFilesAreLeftAlone) {
  std::filesystem::create_directories(folder_);
  const char* const names[] = {"notes.txt", "model.gguf", "aa-00001-of-2.gguf", "ranges",
                               "bb.gguf.bak"};
  for (const char* name : names) {
    std::ofstream(StrCat(folder_, "/", name)) << std::string(1 << 20, 'x');
  }
  EXPECT_THAT(Kept(), ElementsAre());
  EXPECT_EQ(MakeRoom(folder_, 1, 0, ""), 0);
  for (const char* name : names) EXPECT_TRUE(std::filesystem::exists(StrCat(folder_, "/", name)));
}

// Several workers share a folder in which there is room for one model only.
TEST_F(CacheLimit, WhoeverHasAModelKeepsItWhole) {
  const uint64_t seed = TestSeed();
  std::vector<std::thread> threads;
  std::atomic<int> provided = 0;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + t);
      for (int round = 0; round < 12; ++round) {
        const std::string digest = random() % 2 == 0 ? "aa" : "bb";
        const std::unique_ptr<ShardCache> cache = Open(digest, kModelBytes + kSlack);
        ASSERT_NE(cache, nullptr);
        if (!Provide(*cache, digest).ok()) continue;  // the other model is in use
        ++provided;
        const std::vector<uint8_t> want = Bytes(digest);
        for (int part : {0, 1}) {
          std::ifstream in(StrCat(folder_, "/", digest, "-0000", part + 1, "-of-00002.gguf"),
                           std::ios::binary);
          const std::vector<uint8_t> have((std::istreambuf_iterator<char>(in)), {});
          ASSERT_TRUE(std::equal(have.begin(), have.end(), want.begin() + part * kModelBytes / 2,
                                 want.begin() + (part + 1) * kModelBytes / 2))
              << digest << ", part " << part << ", seed " << seed;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(provided, 5);
}

}  // namespace
}  // namespace staffel
