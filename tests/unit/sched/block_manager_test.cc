#include "sched/block_manager.h"

#include <gtest/gtest.h>

namespace staffel::sched {
namespace {

constexpr Hash128 kKey{1, 2};
const std::vector<TokenId> kA = {1, 2}, kB = {3, 4};

TEST(BlockManager, BlankBlocksAreUsedBeforeCachedOnes) {
  BlockManager blocks(3, 2);
  const BlockId first = blocks.Allocate();
  blocks.Publish(first, ChainKey(kKey, {}, kA), kRootContent, kA, "");
  blocks.Release(first);
  EXPECT_EQ(blocks.cached_count(), 1);
  EXPECT_NE(blocks.Allocate(), first);
  EXPECT_NE(blocks.Allocate(), first);
  EXPECT_TRUE(blocks.Find(ChainKey(kKey, {}, kA), kRootContent, kA, "").has_value());
  EXPECT_EQ(blocks.Allocate(), first);
  EXPECT_FALSE(blocks.Find(ChainKey(kKey, {}, kA), kRootContent, kA, "").has_value());
  EXPECT_EQ(blocks.free_count(), 0);
  blocks.CheckInvariants({1, 1, 1});
}

TEST(BlockManager, TheLeastRecentlyReleasedIsEvictedFirst) {
  BlockManager blocks(2, 2);
  const BlockId a = blocks.Allocate(), b = blocks.Allocate();
  blocks.Publish(a, ChainKey(kKey, {}, kA), kRootContent, kA, "");
  blocks.Publish(b, ChainKey(kKey, {}, kB), kRootContent, kB, "");
  blocks.Release(a);
  blocks.Release(b);
  blocks.Reference(a);  // found again: younger than b now
  blocks.Release(a);
  EXPECT_EQ(blocks.Allocate(), b);
}

TEST(BlockManager, AnEqualHashIsNotEnough) {
  BlockManager blocks(4, 2);
  const Hash128 same{9, 9};
  const BlockId a = blocks.Allocate();
  const ContentId content = blocks.Publish(a, same, kRootContent, kA, "salt");
  EXPECT_EQ(blocks.Find(same, kRootContent, kA, "salt")->content, content);
  EXPECT_FALSE(blocks.Find(same, kRootContent, kB, "salt").has_value()) << "other tokens";
  EXPECT_FALSE(blocks.Find(same, content, kA, "salt").has_value()) << "another parent";
  EXPECT_FALSE(blocks.Find(same, kRootContent, kA, "sal").has_value()) << "another salt";
}

TEST(BlockManager, AChildIsNotFoundThroughANewParentInTheOldPlace) {
  BlockManager blocks(2, 2);
  const BlockId parent = blocks.Allocate(), child = blocks.Allocate();
  const ContentId first = blocks.Publish(parent, {1, 1}, kRootContent, kA, "");
  blocks.Publish(child, {2, 2}, first, kB, "");
  blocks.Release(parent);
  const BlockId again = blocks.Allocate();  // evicts the parent, takes its block
  EXPECT_EQ(again, parent);
  const ContentId second = blocks.Publish(again, {1, 1}, kRootContent, kA, "");
  EXPECT_NE(first, second);
  EXPECT_FALSE(blocks.Find({2, 2}, second, kB, "").has_value());
}

TEST(BlockManager, ADoubleKeepsTheFirstAndStaysUnpublished) {
  BlockManager blocks(2, 2);
  const BlockId a = blocks.Allocate(), b = blocks.Allocate();
  const ContentId content = blocks.Publish(a, {1, 1}, kRootContent, kA, "");
  EXPECT_EQ(blocks.Publish(b, {1, 1}, kRootContent, kA, ""), content);
  blocks.Release(b);
  EXPECT_EQ(blocks.blank_count(), 1);
  EXPECT_EQ(blocks.cached_count(), 0);
  blocks.CheckInvariants({1, 0});
}

TEST(BlockManager, AnOrphanGivesWay) {
  BlockManager blocks(3, 2);
  const BlockId orphan = blocks.Allocate(), young = blocks.Allocate();
  blocks.Publish(orphan, {1, 1}, /*parent=*/77, kA, "");
  blocks.Release(orphan);
  const ContentId content = blocks.Publish(young, {1, 1}, /*parent=*/78, kA, "");
  EXPECT_EQ(blocks.Find({1, 1}, 78, kA, "")->block, young);
  EXPECT_EQ(blocks.Find({1, 1}, 78, kA, "")->content, content);
  EXPECT_EQ(blocks.blank_count(), 2);
  blocks.CheckInvariants({0, 1, 0});
}

TEST(BlockManagerDeathTest, BooksThatDoNotAgreeAreFound) {
  BlockManager blocks(2, 2);
  const BlockId a = blocks.Allocate();
  EXPECT_DEATH(blocks.CheckInvariants({0, 0}), "references of block 0");
  blocks.Release(a);
  EXPECT_DEATH(blocks.Release(a), "released too often");
}

TEST(Keys, DependOnParentTokensOrderAndSecret) {
  const Hash128 root = RootKey(kKey, "");
  const Hash128 a = ChainKey(kKey, root, kA);
  EXPECT_NE(a, ChainKey(kKey, root, std::vector<TokenId>{2, 1}));
  EXPECT_NE(a, ChainKey(kKey, RootKey(kKey, "s"), kA));
  EXPECT_NE(a, ChainKey({1, 3}, RootKey({1, 3}, ""), kA));
  EXPECT_NE(ChainKey(kKey, a, kB), ChainKey(kKey, ChainKey(kKey, root, kB), kA));
}

}  // namespace
}  // namespace staffel::sched
