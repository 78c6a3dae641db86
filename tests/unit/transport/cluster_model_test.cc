// Model bytes from the master.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/strings.h"
#include "tests/unit/transport/cluster_ends.h"

namespace staffel {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;
using testing::Dial;
using testing::MasterEnd;
using testing::Serve;
using testing::WorkerEnd;

std::vector<uint8_t> SomeBytes(size_t size) {
  std::vector<uint8_t> bytes(size);
  uint32_t state = 1;
  for (uint8_t& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

class ClusterModel : public ::testing::Test {
 protected:
  void Connect(std::string token = "") {
    ClusterServerOptions options;
    options.token = token;
    options.read_model = [this](const std::string& digest, int64_t offset,
                                absl::Span<uint8_t> out) -> Status {
      if (digest != "d1") return absl::NotFoundError(StrCat("no model has the digest ", digest));
      if (offset + static_cast<int64_t>(out.size()) > static_cast<int64_t>(model_.size())) {
        return absl::OutOfRangeError(StrCat("the model has ", model_.size(), " bytes"));
      }
      if (delay_) std::this_thread::sleep_for(20ms);
      ++pieces_;
      std::memcpy(out.data(), model_.data() + offset, out.size());
      return absl::OkStatus();
    };
    server_ = Serve(master_, std::move(options));
    link_ = Dial(worker_, server_->address(), {.token = token});
    ASSERT_TRUE(worker_.WaitForMessages(1));
  }
  Status Read(const std::string& digest, const std::vector<ModelRange>& ranges,
              std::vector<uint8_t>& got) {
    return link_->ReadModel(digest, ranges, [&](absl::Span<const uint8_t> piece) {
      got.insert(got.end(), piece.begin(), piece.end());
      return absl::OkStatus();
    });
  }

  const std::vector<uint8_t> model_ = SomeBytes(9'000'001);
  std::atomic<bool> delay_ = false;
  std::atomic<int> pieces_ = 0;
  MasterEnd master_;
  WorkerEnd worker_;
  std::unique_ptr<ClusterServer> server_;
  std::unique_ptr<MasterLink> link_;
};

TEST_F(ClusterModel, RangesComeInOrder) {
  Connect("secret");
  std::vector<ModelRange> ranges = {{0, 9'000'001}, {5, 0}, {8'999'999, 2}, {100, 3'000'000}};
  for (int i = 0; i < 4000; ++i) ranges.push_back({i * 2000, 1 + i % 700});
  std::vector<uint8_t> want, got;
  for (const ModelRange& range : ranges) {
    want.insert(want.end(), model_.begin() + range.offset,
                model_.begin() + range.offset + range.size);
  }
  const Status status = Read("d1", ranges, got);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(got == want);
  got.clear();
  EXPECT_TRUE(Read("d1", {}, got).ok());
  EXPECT_TRUE(got.empty());
}

TEST_F(ClusterModel, ErrorsSayWhat) {
  Connect();
  std::vector<uint8_t> got;
  const Status missing = Read("d2", {{0, 1}}, got);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("no model has the digest d2"));
  EXPECT_EQ(Read("d1", {{9'000'000, 2}}, got).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Read("d1", {{-1, 2}}, got).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Read("d1", std::vector<ModelRange>(4097), got).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(link_->ReadModel("d1", std::vector<ModelRange>{{0, 100}},
                             [](auto) { return absl::ResourceExhaustedError("disk full"); }),
            absl::ResourceExhaustedError("disk full"));
  EXPECT_TRUE(Read("d1", {{0, 5}}, got).ok());
}

TEST_F(ClusterModel, ReadsOfSeveralThreadsAndSteps) {
  Connect();
  std::vector<std::thread> readers;
  std::atomic<int> right = 0;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      std::vector<uint8_t> got;
      right += Read("d1", {{0, 9'000'001}}, got).ok() && got == model_;
    });
  }
  const WorkerId worker = master_.Worker(0);
  for (int step = 1; step <= 200; ++step) {
    server_->Send(worker, Step{ReplicaId(0), testing::TestPlan(1, step, 4)});
  }
  EXPECT_TRUE(worker_.WaitForMessages(201));
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(right, 4);
}

TEST_F(ClusterModel, TheEndOfEitherSideEndsAReadInProgress) {
  Connect();
  delay_ = true;
  for (const bool master_ends : {false, true}) {
    if (master_ends) {
      link_.reset();
      worker_.messages.clear();
      worker_.gone.reset();
      link_ = Dial(worker_, server_->address());
      ASSERT_TRUE(worker_.WaitForMessages(1));
    }
    pieces_ = 0;
    Status status;
    MasterLink* const link = link_.get();
    std::thread reader([&] {
      status = link->ReadModel("d1", std::vector<ModelRange>{{0, 9'000'001}, {0, 9'000'001}},
                               [](auto) { return absl::OkStatus(); });
    });
    while (pieces_ < 2) std::this_thread::sleep_for(1ms);
    if (master_ends) {
      server_.reset();
    } else {
      server_->Disconnect(master_.Worker(0), absl::AbortedError("test"));
    }
    reader.join();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  }
}

}  // namespace
}  // namespace staffel
