// Sets of byte ranges. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "staffel/cluster.h"

namespace staffel {

// Sorts, drops empty ones, and joins those that overlap or touch.
void Normalise(std::vector<ModelRange>* ranges);
// Of normalised sets.
std::vector<ModelRange> Subtract(absl::Span<const ModelRange> from,
                                 absl::Span<const ModelRange> what);
bool Overlaps(absl::Span<const ModelRange> set, const ModelRange& range);
// The whole blocks that the ranges touch; normalised.
std::vector<ModelRange> RoundedToBlocks(absl::Span<const ModelRange> ranges, int64_t block_bytes);
int64_t TotalBytes(absl::Span<const ModelRange> ranges);

// Ranges of one size at equal distances, as the columns of a matrix lie; what is fetched, checked
// and recorded together.
struct Piece {
  int64_t offset = 0;
  int64_t run_bytes = 0;
  int64_t stride = 0;  // from one run's begin to the next one's; 0 for a single run
  int64_t runs = 1;

  int64_t bytes() const { return run_bytes * runs; }
  ModelRange run(int64_t i) const { return {offset + i * stride, run_bytes}; }
  bool operator==(const Piece&) const = default;
};

inline constexpr int64_t kPieceBytesMax = int64_t{1} << 20;
inline constexpr int64_t kPieceRunsMax = 4096;

// Covers a normalised set, in its order.
std::vector<Piece> CutIntoPieces(absl::Span<const ModelRange> ranges);

}  // namespace staffel
