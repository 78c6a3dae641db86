#include "tests/kernels/cpu_kernel_support.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <sstream>

#include "kernels/ref/dequant.h"

namespace staffel::kernels {
namespace {

// Offsets of the halves in a block, and their sizes relative to the wanted weight size.
struct HalfField {
  int offset;
  float scale;
};
std::vector<HalfField> HalfFields(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return {{0, 1.0f / 8}};
    case DType::kQ4_1:
      return {{0, 1.0f / 8}, {2, -1}};
    case DType::kQ5_0:
      return {{0, 1.0f / 16}};
    case DType::kQ5_1:
      return {{0, 1.0f / 16}, {2, -1}};
    case DType::kQ8_0:
      return {{0, 1.0f / 128}};
    case DType::kQ4_K:
      return {{0, 1.0f / (8 * 32)}, {2, 1.0f / 32}};
    case DType::kQ5_K:
      return {{0, 1.0f / (16 * 32)}, {2, 1.0f / 32}};
    case DType::kQ6_K:
      return {{208, 1.0f / (32 * 64)}};
    default:
      return {};
  }
}

}  // namespace

std::vector<DType> AllTypes() {
  std::vector<DType> types(std::begin(kQuantisedTypes), std::end(kQuantisedTypes));
  types.insert(types.end(), std::begin(kFloatTypes), std::end(kFloatTypes));
  return types;
}

std::string LevelName(const ::testing::TestParamInfo<const CpuKernels*>& info) {
  return info.param->name;
}

uint16_t FloatToHalf(float x) {  // normal numbers, towards zero
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int exponent = static_cast<int>(bits >> 23 & 255) - 112;
  if (exponent <= 0) return static_cast<uint16_t>(bits >> 16 & 0x8000);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 1023));
}

float Bf16Rounded(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

StoredMatrix::StoredMatrix(DType type, int rows, int cols, Rng& rng)
    : type(type),
      rows(rows),
      cols(cols),
      row_bytes(int64_t{cols} / InfoOf(type).block_elements * InfoOf(type).block_bytes),
      bytes(rows * row_bytes),
      values(int64_t{rows} * cols) {
  const float size = 1 / std::sqrt(static_cast<float>(cols));
  std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
  std::normal_distribution<float> normal;
  const DTypeInfo& info = InfoOf(type);
  for (auto& b : bytes) b = static_cast<uint8_t>(rng());
  for (size_t at = 0; at < bytes.size(); at += info.block_bytes) {
    const float sign = rng() % 8 == 0 ? -1 : 1;  // scales may be negative
    for (const HalfField& f : HalfFields(type)) {
      const uint16_t half = FloatToHalf(sign * size * f.scale * uniform(rng));
      std::memcpy(&bytes[at + f.offset], &half, 2);
    }
    if (info.block_elements > 1) continue;
    const float x = size * normal(rng);
    const uint16_t half = type == DType::kF16
                              ? FloatToHalf(x)
                              : static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
    if (type == DType::kF32) {
      std::memcpy(&bytes[at], &x, 4);
    } else {
      std::memcpy(&bytes[at], &half, 2);
    }
  }
  ref::Dequantize(type, bytes.data(), int64_t{rows} * cols, values.data());
}

WeightPart StoredMatrix::Part(int row_begin, int row_end, int col_begin, int col_end) const {
  const DTypeInfo& info = InfoOf(type);
  WeightPart p;
  p.type = type;
  p.bytes =
      bytes.data() + row_begin * row_bytes + col_begin / info.block_elements * info.block_bytes;
  p.row_stride_bytes = row_bytes;
  p.rows = row_end - row_begin;
  p.cols = col_end - col_begin;
  return p;
}

Packed::Packed(const CpuKernels& kernels, const WeightPart& part)
    : memory(PackedBytes(part.type, part.rows, part.cols), 0xA5) {
  matrix.type = part.type;
  matrix.rows = part.rows;
  matrix.cols = part.cols;
  matrix.data = memory.data();
  matrix.group_stride_bytes = GroupBytes(part.type, part.cols);
  kernels.pack(part, matrix, 0, Groups(part.rows));
}

Prepared::Prepared(ActivationForm form, int rows, int cols)
    : memory(ActivationBytes(form, rows, cols), 0xFF) {  // NaN as float, -1 as int8
  activations.form = form;
  activations.rows = rows;
  activations.cols = cols;
  activations.data = memory.data();
}

Prepared::Prepared(const CpuKernels& kernels, ActivationForm form, const float* x, int rows,
                   int cols)
    : Prepared(form, rows, cols) {
  PrepareParams p;
  p.rows = rows;
  p.cols = cols;
  p.tile_end = Tiles(rows);
  p.residual = const_cast<float*>(x);  // only read: there is no delta
  p.residual_stride = cols;
  p.out = &activations;
  kernels.prepare(p);
}

std::vector<float> RandomRows(int64_t count, Rng& rng, float scale) {
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (auto& v : x) v = scale * normal(rng);
  return x;
}

std::vector<double> AsKept(ActivationForm form, const float* x, int cols) {
  std::vector<double> kept(x, x + cols);
  if (form == ActivationForm::kBf16) {
    for (int i = 0; i < cols; i++) kept[i] = Bf16Rounded(x[i]);
  }
  if (form == ActivationForm::kBf16 || form == ActivationForm::kF32) return kept;
  const float top = form == ActivationForm::kInt16 ? 16319.0f : 127.0f;
  for (int b = 0; b < cols; b += 32) {
    const int end = std::min(cols, b + 32);
    float max = 0;
    for (int i = b; i < end; i++) max = std::max(max, std::fabs(x[i]));
    const float inverse = max > 1e-30f ? top / max : 0;  // below, a row counts as zeros
    for (int i = b; i < end; i++) {
      kept[i] = std::nearbyint(x[i] * inverse) * static_cast<double>(max * (1.0f / top));
    }
  }
  return kept;
}

int CodeAt(const uint8_t* tile, int planes, int rows, int row, int col) {
  int code = 0;
  for (int p = 0; p < planes; p++) {
    const int operand = (col / 32 * planes + p) * 8 + col % 32 / 4;
    code = 128 * code + static_cast<int8_t>(tile[4 * (operand * rows + row) + col % 4]);
  }
  return code;
}

std::vector<double> ReadBack(const Activations& a) {
  const int padded = (a.cols + 63) / 64 * 64;
  const int64_t stride = ActivationBytes(a.form, kTileRows, a.cols);
  std::vector<double> out(int64_t{a.rows} * a.cols);
  for (int row = 0; row < a.rows; row++) {
    const uint8_t* tile = a.data + row / kTileRows * stride;
    const int n = std::min(kTileRows, a.rows - row / kTileRows * kTileRows), r = row % kTileRows;
    for (int c = 0; c < a.cols; c++) {
      double& v = out[int64_t{row} * a.cols + c];
      if (a.form == ActivationForm::kF32) {
        float x;
        std::memcpy(&x, tile + 4 * (int64_t{c} * n + r), 4);
        v = x;
      } else if (a.form == ActivationForm::kBf16) {
        uint16_t x;
        std::memcpy(&x, tile + 4 * (int64_t{c} / 2 * n + r) + 2 * (c % 2), 2);
        v = ref::Bfloat16ToFloat(x);
      } else {
        const int planes = a.form == ActivationForm::kInt16 ? 2 : 1;
        float scale;
        std::memcpy(&scale, tile + int64_t{padded} * planes * n + 4 * (c / 32 * n + r), 4);
        v = double{scale} * CodeAt(tile, planes, n, r, c);
      }
    }
  }
  return out;
}

::testing::AssertionResult Near(double got, double want, double bound, int row, int col,
                                const std::string& what) {
  if (std::abs(got - want) <= bound) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << what << ": row " << row << " col " << col << ": got "
                                       << got << " want " << want << " bound " << bound;
}

::testing::AssertionResult SameBits(const float* got, const float* want, int cols, int row,
                                    const std::string& what) {
  for (int c = 0; c < cols; c++) {
    if (std::bit_cast<uint32_t>(got[c]) != std::bit_cast<uint32_t>(want[c])) {
      return ::testing::AssertionFailure() << what << ": row " << row << " col " << c << ": got "
                                           << got[c] << " want " << want[c] << " (to the last bit)";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace staffel::kernels
