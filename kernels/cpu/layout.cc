#define STAFFEL_CPU_LEVEL common

#include "kernels/cpu/layout.h"

#include "kernels/cpu/kv_layout.h"
#include "staffel/backend.h"

namespace staffel::kernels {

int Groups(int rows) { return (rows + kGroup - 1) / kGroup; }
int Tiles(int rows) { return (rows + kTileRows - 1) / kTileRows; }

int64_t GroupBytes(DType type, int cols) {
  const auto f = static_cast<common::Format>(type);
  return common::TilesOfRow(f, cols) * common::TileBytes(f);
}

int64_t PackedBytes(DType type, int rows, int cols) {
  return Groups(rows) * GroupBytes(type, cols);
}

int64_t ActivationBytes(ActivationForm form, int rows, int cols) {
  return Tiles(rows) * common::ActivationTileBytes(form, cols);
}

int64_t KvSubBlockElements(int kv_heads, int head_dim) {
  return kv_heads * common::KvHeadElements(head_dim);
}

ActivationForm FormFor(DType weight, ActivationType activations) {
  const auto format = static_cast<common::Format>(weight);
  const bool fastest = activations == ActivationType::kInt8;
  if (format == common::kBF16 && fastest) return ActivationForm::kBf16;
  if (!common::InfoOf(format).quantised || activations == ActivationType::kF32) {
    return ActivationForm::kF32;
  }
  return fastest ? ActivationForm::kInt8 : ActivationForm::kInt16;
}

const char* PackError(DType type, int64_t tensor_cols, int64_t col_begin, int64_t col_end) {
  const int block = common::InfoOf(static_cast<common::Format>(type)).block_k;
  if (tensor_cols % block != 0) return "its rows are not a whole number of quantisation blocks";
  if (col_begin % block != 0 || col_end % block != 0) {
    return "its column range is cut inside a quantisation block";
  }
  return nullptr;
}

}  // namespace staffel::kernels
