#include "source/shard_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/strings.h"
#include "tests/support/seed.h"

namespace staffel {
namespace {

using ::testing::HasSubstr;

constexpr char kDigest[] = "00112233445566778899aabbccddeeff";

std::string Message(const Status& status) { return std::string(status.message()); }

// A master with a model of two files.
class ShardCacheTest : public ::testing::Test {
 protected:
  ShardCacheTest() {
    folder_ = std::filesystem::temp_directory_path() / StrCat("staffel-cache-", getpid());
    std::filesystem::remove_all(folder_);
    std::mt19937_64 random(TestSeed());
    bytes_.resize(5 * kPieceBytesMax + 12345);
    for (uint8_t& byte : bytes_) byte = static_cast<uint8_t>(random());
    sizes_ = {2 * kPieceBytesMax + 777, Total() - 2 * kPieceBytesMax - 777};
  }
  ~ShardCacheTest() override { std::filesystem::remove_all(folder_); }

  int64_t Total() const { return static_cast<int64_t>(bytes_.size()); }
  std::unique_ptr<ShardCache> Open() {
    Result<std::unique_ptr<ShardCache>> cache = ShardCache::Open({folder_, kDigest, sizes_});
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  ShardCache::Fetch Master() {
    return [this](absl::Span<const ModelRange> ranges, const ShardCache::Sink& sink) -> Status {
      ++calls_;
      EXPECT_LE(ranges.size(), size_t{MasterLink::kReadRangesMax});
      // All bytes in pieces that do not end where ranges do.
      std::vector<uint8_t> all;
      for (const ModelRange& range : ranges) {
        all.insert(all.end(), bytes_.begin() + range.offset,
                   bytes_.begin() + range.offset + range.size);
      }
      for (size_t at = 0; at < all.size(); at += 65521) {
        if (sent_ >= break_after_) return absl::UnavailableError("the link broke");
        const absl::Span<const uint8_t> part = absl::MakeConstSpan(all).subspan(at, 65521);
        sent_ += static_cast<int64_t>(part.size());
        STAFFEL_RETURN_IF_ERROR(sink(part));
      }
      return absl::OkStatus();
    };
  }
  Result<int64_t> Provide(ShardCache& cache, std::vector<ModelRange> ranges) {
    return cache.Provide(std::move(ranges), Master(), nullptr, nullptr);
  }
  std::string Path(int part) const {
    return StrCat(folder_, "/", kDigest, "-0000", part, "-of-00002.gguf");
  }
  std::string Log() const { return StrCat(folder_, "/", kDigest, ".ranges"); }
  // Whether the files hold the model's bytes in these ranges, and (if asked) nothing else.
  void ExpectValid(const std::vector<ModelRange>& ranges, bool zero_elsewhere = false) {
    std::vector<uint8_t> have;
    for (int part = 1; part <= 2; ++part) {
      std::ifstream in(Path(part), std::ios::binary);
      have.insert(have.end(), std::istreambuf_iterator<char>(in), {});
    }
    ASSERT_EQ(have.size(), bytes_.size());
    std::vector<uint8_t> want(bytes_.size());
    if (!zero_elsewhere) want = have;
    for (const ModelRange& range : ranges) {
      std::copy_n(bytes_.begin() + range.offset, range.size, want.begin() + range.offset);
    }
    EXPECT_TRUE(have == want);
  }
  // Half of the columns of a matrix.
  std::vector<ModelRange> Columns(int half) const {
    std::vector<ModelRange> ranges;
    for (int row = 0; row < 9000; ++row) ranges.push_back({1000 + 400 * row + 200 * half, 200});
    return ranges;
  }

  std::string folder_;
  std::vector<uint8_t> bytes_;
  std::vector<int64_t> sizes_;
  int calls_ = 0;
  int64_t sent_ = 0, break_after_ = int64_t{1} << 60;
};

TEST_F(ShardCacheTest, FetchesWhatIsAskedForAndNoMore) {
  const std::vector<ModelRange> ranges = {{0, 100}, {sizes_[0] - 50, 100}, {Total() - 1, 1}};
  std::unique_ptr<ShardCache> cache = Open();
  const Result<int64_t> fetched = Provide(*cache, ranges);
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(*fetched, 201);
  EXPECT_EQ(sent_, 201);
  ExpectValid(ranges, true);
  EXPECT_EQ(cache->path(), Path(1));
}

TEST_F(ShardCacheTest, ARestartNeedsNoMaster) {
  const std::vector<ModelRange> ranges = Columns(0);
  EXPECT_EQ(*Provide(*Open(), ranges), 9000 * 200);
  calls_ = 0;
  EXPECT_EQ(*Provide(*Open(), ranges), 0);
  EXPECT_EQ(calls_, 0);
  // Another part of the same model takes what is missing of it.
  std::vector<ModelRange> all = {{0, Total()}};
  EXPECT_EQ(*Provide(*Open(), all), Total() - 9000 * 200);
  ExpectValid(all);
}

TEST_F(ShardCacheTest, WhatCameBeforeABreakIsKept) {
  break_after_ = 2 * kPieceBytesMax + 100;
  const std::vector<ModelRange> all = {{0, Total()}};
  const Result<int64_t> broken = Provide(*Open(), all);
  EXPECT_TRUE(absl::IsUnavailable(broken.status())) << broken.status();
  EXPECT_THAT(Message(broken.status()), HasSubstr("the link broke"));
  EXPECT_THAT(Message(broken.status()), HasSubstr(StrCat("(", sent_, " bytes)")));
  break_after_ = int64_t{1} << 60;
  const Result<int64_t> rest = Provide(*Open(), all);
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(*rest, Total() - 2 * kPieceBytesMax);
  ExpectValid(all, true);
}

TEST_F(ShardCacheTest, AMasterThatSendsTooLittleOrTooMuchIsAnError) {
  std::unique_ptr<ShardCache> cache = Open();
  const auto sends = [](int64_t bytes) {
    return [bytes](absl::Span<const ModelRange>, const ShardCache::Sink& sink) {
      return sink(std::vector<uint8_t>(bytes));
    };
  };
  EXPECT_TRUE(absl::IsDataLoss(cache->Provide({{0, 100}}, sends(99), nullptr, nullptr).status()));
  EXPECT_TRUE(absl::IsDataLoss(cache->Provide({{0, 100}}, sends(101), nullptr, nullptr).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Provide(*cache, {{Total() - 1, 2}}).status()));
}

TEST_F(ShardCacheTest, DamagedBytesAreFetchedAgain) {
  const std::vector<ModelRange> all = {{0, Total()}};
  ASSERT_TRUE(Provide(*Open(), all).ok());
  {
    std::fstream file(Path(1), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(kPieceBytesMax + 17);
    file.put(static_cast<char>(~bytes_[kPieceBytesMax + 17]));
  }
  EXPECT_EQ(*Provide(*Open(), all), kPieceBytesMax);
  ExpectValid(all, true);
  // A file that someone has deleted.
  std::filesystem::remove(Path(2));
  EXPECT_GE(*Provide(*Open(), all), sizes_[1]);
  ExpectValid(all, true);
}

// A crash can leave any prefix of the log, any line of it torn, and bytes without their line.
TEST_F(ShardCacheTest, ATornLogCostsItsTornPieces) {
  const std::vector<ModelRange> all = {{0, Total()}};
  ASSERT_TRUE(Provide(*Open(), all).ok());
  std::string log;
  {
    std::ifstream in(Log());
    log.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (size_t size = 0; size < log.size(); size += 7) {
    std::ofstream(Log(), std::ios::trunc) << log.substr(0, size);
    const Result<int64_t> fetched = Provide(*Open(), all);
    ASSERT_TRUE(fetched.ok()) << fetched.status();
    EXPECT_LE(*fetched, Total());
    ASSERT_EQ(*Provide(*Open(), all), 0) << "cut at byte " << size;
  }
  ExpectValid(all, true);
  std::ofstream(Log(), std::ios::trunc)
      << "staffel-ranges 1 " << kDigest << " " << sizes_[0] << "," << sizes_[1] << "\n"
      << "not a line\n0 100 0 1 5 6\n-1 -1 -1 -1 -1 -1\n99999999999999999999 1 1 1 1 1\n";
  EXPECT_EQ(*Provide(*Open(), all), Total());
  // Another model's log, or another version's.
  std::ofstream(Log(), std::ios::trunc) << "staffel-ranges 2\n";
  EXPECT_EQ(*Provide(*Open(), all), Total());
  EXPECT_EQ(*Provide(*Open(), all), 0);
}

TEST_F(ShardCacheTest, TwoThatShareTheFolderFetchEachByteOnce) {
  const std::vector<ModelRange> all = {{0, Total()}};
  std::atomic<int64_t> sent = 0;
  int64_t fetched[2] = {};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      // Descriptors of their own: locks are between these.
      Result<std::unique_ptr<ShardCache>> cache = ShardCache::Open({folder_, kDigest, sizes_});
      ASSERT_TRUE(cache.ok()) << cache.status();
      const Result<int64_t> result = (*cache)->Provide(
          i == 0 ? all : Columns(0),
          [&](absl::Span<const ModelRange> ranges, const ShardCache::Sink& sink) -> Status {
            for (const ModelRange& range : ranges) {
              sent += range.size;
              STAFFEL_RETURN_IF_ERROR(
                  sink(absl::MakeConstSpan(bytes_).subspan(range.offset, range.size)));
            }
            return absl::OkStatus();
          },
          nullptr, nullptr);
      ASSERT_TRUE(result.ok()) << result.status();
      fetched[i] = *result;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sent, Total());
  EXPECT_EQ(fetched[0] + fetched[1], Total());
  ExpectValid(all, true);
}

TEST_F(ShardCacheTest, IsGivenUpWhenAsked) {
  std::unique_ptr<ShardCache> cache = Open();
  int asked = 0;
  double share = 0;
  const Result<int64_t> given_up = cache->Provide(
      {{0, Total()}}, Master(), [&](double done) { share = done; }, [&] { return ++asked > 30; });
  EXPECT_TRUE(absl::IsCancelled(given_up.status())) << given_up.status();
  EXPECT_EQ(*Provide(*cache, {{0, kPieceBytesMax}}), 0) << "the pieces before are there";
  ASSERT_TRUE(cache
                  ->Provide(
                      {{0, Total()}}, Master(), [&](double done) { share = done; }, nullptr)
                  .ok());
  EXPECT_EQ(share, 1);
}

TEST_F(ShardCacheTest, AFullDiskIsNamedWithWhatToDo) {
  std::unique_ptr<ShardCache> cache = Open();
  // Files may grow to less than the log needs: the write fails as on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit tight = before;
  tight.rlim_cur = kPieceBytesMax + 100;
  setrlimit(RLIMIT_FSIZE, &tight);
  const Result<int64_t> full = Provide(*cache, {{0, Total()}});
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(absl::IsResourceExhausted(full.status())) << full.status();
  EXPECT_THAT(Message(full.status()), HasSubstr(folder_));
  EXPECT_THAT(Message(full.status()), HasSubstr("--cache-dir"));
  EXPECT_THAT(Message(full.status()), HasSubstr("bytes) were fetched"));
  // With room again, the rest comes.
  EXPECT_EQ(*Provide(*Open(), {{0, Total()}}), Total() - kPieceBytesMax);
  ExpectValid({{0, Total()}}, true);
}

TEST_F(ShardCacheTest, WhatCannotBeIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(ShardCache::Open({folder_, "../x", sizes_}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ShardCache::Open({folder_, kDigest, {}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ShardCache::Open({folder_, kDigest, {0}}).status()));
  std::ofstream(folder_ + "-file") << "x";
  const Status not_a_folder = ShardCache::Open({folder_ + "-file", kDigest, sizes_}).status();
  EXPECT_FALSE(not_a_folder.ok());
  EXPECT_THAT(Message(not_a_folder), HasSubstr(folder_ + "-file"));
  std::filesystem::remove(folder_ + "-file");
}

}  // namespace
}  // namespace staffel
