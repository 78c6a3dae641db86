#include "source/range_set.h"

#include <algorithm>

namespace staffel {

void Normalise(std::vector<ModelRange>* ranges) {
  std::sort(ranges->begin(), ranges->end(),
            [](const ModelRange& a, const ModelRange& b) { return a.offset < b.offset; });
  size_t kept = 0;
  for (const ModelRange& range : *ranges) {
    if (range.size <= 0) continue;
    if (kept > 0 && range.offset <= (*ranges)[kept - 1].offset + (*ranges)[kept - 1].size) {
      ModelRange& last = (*ranges)[kept - 1];
      last.size = std::max(last.size, range.offset + range.size - last.offset);
    } else {
      (*ranges)[kept++] = range;
    }
  }
  ranges->resize(kept);
}

std::vector<ModelRange> Subtract(absl::Span<const ModelRange> from,
                                 absl::Span<const ModelRange> what) {
  std::vector<ModelRange> left;
  size_t next = 0;
  for (const ModelRange& range : from) {
    int64_t begin = range.offset;
    const int64_t end = range.offset + range.size;
    while (next < what.size() && what[next].offset + what[next].size <= begin) ++next;
    for (size_t i = next; i < what.size() && what[i].offset < end; ++i) {
      if (what[i].offset > begin) left.push_back({begin, what[i].offset - begin});
      begin = std::max(begin, what[i].offset + what[i].size);
    }
    if (begin < end) left.push_back({begin, end - begin});
  }
  return left;
}

bool Overlaps(absl::Span<const ModelRange> set, const ModelRange& range) {
  const auto after =
      std::upper_bound(set.begin(), set.end(), range.offset,
                       [](int64_t offset, const ModelRange& each) { return offset < each.offset; });
  if (after != set.end() && after->offset < range.offset + range.size) return true;
  return after != set.begin() && (after - 1)->offset + (after - 1)->size > range.offset;
}

std::vector<ModelRange> RoundedToBlocks(absl::Span<const ModelRange> ranges, int64_t block_bytes) {
  std::vector<ModelRange> blocks;
  blocks.reserve(ranges.size());
  for (const ModelRange& range : ranges) {
    const int64_t begin = range.offset / block_bytes * block_bytes;
    const int64_t end = (range.offset + range.size + block_bytes - 1) / block_bytes * block_bytes;
    if (range.size > 0) blocks.push_back({begin, end - begin});
  }
  Normalise(&blocks);
  return blocks;
}

int64_t TotalBytes(absl::Span<const ModelRange> ranges) {
  int64_t bytes = 0;
  for (const ModelRange& range : ranges) bytes += range.size;
  return bytes;
}

std::vector<Piece> CutIntoPieces(absl::Span<const ModelRange> ranges) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < ranges.size();) {
    const ModelRange& range = ranges[i];
    if (range.size > kPieceBytesMax / 2) {
      for (int64_t at = 0; at < range.size; at += kPieceBytesMax) {
        pieces.push_back({range.offset + at, std::min(kPieceBytesMax, range.size - at), 0, 1});
      }
      ++i;
      continue;
    }
    Piece piece{range.offset, range.size, 0, 1};
    while (++i < ranges.size() && piece.runs < kPieceRunsMax &&
           piece.bytes() + piece.run_bytes <= kPieceBytesMax) {
      const int64_t stride = ranges[i].offset - ranges[i - 1].offset;
      if (ranges[i].size != piece.run_bytes || (piece.runs > 1 && stride != piece.stride)) break;
      piece.stride = stride;
      ++piece.runs;
    }
    pieces.push_back(piece);
  }
  return pieces;
}

}  // namespace staffel
