#include "app/shard_ranges.h"

#include "base/check.h"
#include "device/program_check.h"
#include "source/range_set.h"

namespace staffel {
namespace {

// The offset of bytes that lie in one of the parts.
int64_t OffsetOf(const uint8_t* bytes, const std::vector<ModelPart>& parts) {
  int64_t before = 0;
  for (const ModelPart& part : parts) {
    if (bytes >= part.bytes.begin() && bytes < part.bytes.end()) {
      return before + (bytes - part.bytes.data());
    }
    before += static_cast<int64_t>(part.bytes.size());
  }
  STAFFEL_CHECK(false) << "a tensor must lie in its model's files";
  return -1;
}

}  // namespace

Result<std::vector<ModelRange>> ShardRanges(const Program& program, const ModelFile& file) {
  const std::vector<ModelPart> parts = file.parts();
  STAFFEL_ASSIGN_OR_RETURN(const std::vector<WeightSlice> slices,
                           FindWeights(program, file.weights()));
  std::vector<ModelRange> ranges;
  for (const WeightSlice& slice : slices) {
    if (slice.rows.size() <= 0 || slice.cols.size() <= 0) continue;
    const absl::Span<const uint8_t> row = slice.RowBytes(0);
    const int64_t offset = OffsetOf(row.data(), parts);
    const int64_t row_bytes = static_cast<int64_t>(row.size());
    const int64_t stride = slice.tensor->row_bytes();
    if (row_bytes == stride) {
      ranges.push_back({offset, stride * slice.rows.size()});
      continue;
    }
    for (int r = 0; r < slice.rows.size(); ++r) ranges.push_back({offset + r * stride, row_bytes});
  }
  Normalise(&ranges);
  return ranges;
}

}  // namespace staffel
