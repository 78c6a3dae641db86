#include "plan/kv_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace staffel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

// SmolLM2-135M with bf16 KV: 30 layers of 3 heads of 64.
KvPoolRequest SmolLm2(int64_t memory_bytes) {
  return {.memory_bytes = memory_bytes,
          .kv_bytes_per_block = 30 * 2 * 3 * 64 * 2 * 16,
          .block_size = 16,
          .max_model_len = 8192,
          .max_sequences = 64};
}

TEST(SizeKvPool, DefaultIsAFewFullContexts) {
  Result<KvPoolSize> size = SizeKvPool(SmolLm2(16384 * kMiB));
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_EQ(size->block_count, 4 * 8192 / 16);
  EXPECT_EQ(size->bytes, 2048 * int64_t{368640});
}

TEST(SizeKvPool, ShortContextsGetRoomForManySequences) {
  KvPoolRequest request = SmolLm2(16384 * kMiB);
  request.max_model_len = 256;
  EXPECT_EQ(SizeKvPool(request)->block_count, 64 * 256 / 16);
}

TEST(SizeKvPool, DefaultTakesAtMostHalfOfFreeMemory) {
  EXPECT_EQ(SizeKvPool(SmolLm2(1000 * kMiB))->block_count, 1000 * kMiB / 368640 / 2);
}

TEST(SizeKvPool, OneFullContextMayTakeMoreThanHalf) {
  EXPECT_EQ(SizeKvPool(SmolLm2(200 * kMiB))->block_count, 8192 / 16);
}

TEST(SizeKvPool, LessThanOneContextIsRefusedWithNumbers) {
  Status status = SizeKvPool(SmolLm2(100 * kMiB)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("8192 tokens"), HasSubstr("180 MiB"), HasSubstr("100 MiB"),
                    HasSubstr("4544 tokens fit"), HasSubstr("--max-model-len")));
  EXPECT_FALSE(SizeKvPool(SmolLm2(-5)).ok());
}

TEST(SizeKvPool, ExplicitBlocksWin) {
  KvPoolRequest request = SmolLm2(1000 * kMiB);
  request.kv_blocks = 64;
  request.kv_memory_bytes = 500 * kMiB;
  EXPECT_EQ(SizeKvPool(request)->block_count, 64);
  request.kv_blocks = 100000;
  Status status = SizeKvPool(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("100000"), HasSubstr("2844 blocks")));
}

TEST(SizeKvPool, ExplicitMemoryIsRoundedDownToBlocks) {
  KvPoolRequest request = SmolLm2(1000 * kMiB);
  request.kv_memory_bytes = 10 * 368640 + 5;
  EXPECT_EQ(SizeKvPool(request)->block_count, 10);
  EXPECT_EQ(SizeKvPool(request)->bytes, 10 * 368640);
  request.kv_memory_bytes = 368639;
  EXPECT_EQ(SizeKvPool(request).status().code(), absl::StatusCode::kResourceExhausted);
  request.kv_memory_bytes = 1001 * kMiB;
  EXPECT_EQ(SizeKvPool(request).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SizeKvPool, NegativeNumbersAreRefused) {
  KvPoolRequest request = SmolLm2(1000 * kMiB);
  request.kv_blocks = -1;
  EXPECT_EQ(SizeKvPool(request).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace staffel
