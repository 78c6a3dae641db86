// What the tests of the CPU kernels share: stored matrices with random blocks, packed matrices,
// activation tiles, comparison with derived bounds. Every suite runs on every level of the machine.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/api/cpu_kernels.h"
#include "kernels/api/cpu_select.h"
#include "staffel/backend.h"
#include "staffel/tensor.h"

namespace staffel::kernels {

using Rng = std::mt19937_64;

inline constexpr double kEpsilon = 1.0 / (1 << 24);  // unit roundoff of f32
inline constexpr double kBf16Epsilon = 1.0 / (1 << 8);

inline constexpr DType kQuantisedTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                            DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
inline constexpr DType kFloatTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
std::vector<DType> AllTypes();
inline constexpr ActivationType kActivationTypes[] = {ActivationType::kInt16, ActivationType::kInt8,
                                                      ActivationType::kF32};
inline constexpr ActivationForm kAllForms[] = {ActivationForm::kInt8, ActivationForm::kInt16,
                                               ActivationForm::kBf16, ActivationForm::kF32};

class CpuKernelTest : public ::testing::TestWithParam<const CpuKernels*> {
 protected:
  const CpuKernels& k() const { return *GetParam(); }
};

std::string LevelName(const ::testing::TestParamInfo<const CpuKernels*>& info);

#define STAFFEL_ALL_LEVELS(Suite) \
  INSTANTIATE_TEST_SUITE_P(Levels, Suite, ::testing::ValuesIn(AvailableCpuKernels()), LevelName)

// Memory of exactly `count` elements on a 64-byte edge, so that a sanitizer sees every overrun.
template <class T>
class Aligned {
 public:
  explicit Aligned(int64_t count, T fill = T{})
      : data_(static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{kAlignment}))),
        count_(count) {
    for (int64_t i = 0; i < count; i++) data_[i] = fill;
  }
  ~Aligned() { ::operator delete (data_, std::align_val_t{kAlignment}); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }
  int64_t size() const { return count_; }

 private:
  T* data_;
  int64_t count_;
};

// A stored matrix of random blocks (weights of about unit size / sqrt(cols)) and its f32 values by
// kernels/ref/dequant.
struct StoredMatrix {
  StoredMatrix(DType type, int rows, int cols, Rng& rng);

  WeightPart Part() const { return Part(0, rows, 0, cols); }
  WeightPart Part(int row_begin, int row_end, int col_begin, int col_end) const;
  float at(int row, int col) const { return values[int64_t{row} * cols + col]; }

  DType type;
  int rows, cols;
  int64_t row_bytes;
  std::vector<uint8_t> bytes;
  std::vector<float> values;  // [rows, cols]
};

// Packed by `kernels` into memory of exactly PackedBytes.
struct Packed {
  Packed(const CpuKernels& kernels, const WeightPart& part);
  Aligned<uint8_t> memory;
  PackedMatrix matrix;
};

// Activations of rows x [rows, cols] in a form, written by CpuKernels::prepare without norm. The
// memory begins as garbage: kernels may rely on nothing that was not written.
struct Prepared {
  Prepared(const CpuKernels& kernels, ActivationForm form, const float* x, int rows, int cols);
  Prepared(ActivationForm form, int rows, int cols);  // garbage only
  Aligned<uint8_t> memory;
  Activations activations;
};

std::vector<float> RandomRows(int64_t count, Rng& rng, float scale = 1);

// What a form keeps of a row: itself, rounded to bf16, or codes of 8 or 15 bits per 32 columns.
std::vector<double> AsKept(ActivationForm form, const float* x, int cols);
// The code of a column in a tile of `rows` rows with 1 or 2 planes.
int CodeAt(const uint8_t* tile, int planes, int rows, int row, int col);
// Bytes of an activation tile in plain order, read back: [rows, cols].
std::vector<double> ReadBack(const Activations& a);

uint16_t FloatToHalf(float x);
float Bf16Rounded(float x);

// "row 3 col 17: got .. want .. bound .." on failure.
::testing::AssertionResult Near(double got, double want, double bound, int row, int col,
                                const std::string& what);
// Bitwise equality of rows of two matrices.
::testing::AssertionResult SameBits(const float* got, const float* want, int cols, int row,
                                    const std::string& what);

}  // namespace staffel::kernels
