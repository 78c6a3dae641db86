// The loops over a row of logits, once per instruction set (one translation unit each around
// row_kernels_body.h). All give the same bits: 16 lanes, added in one order, without fused
// multiply-adds. Pure.
#pragma once

namespace staffel {

// Sums are kept in float within such a block and in double across: the error stays below 1e-6.
inline constexpr int kRowBlock = 1024;

struct RowKernels {
  const char* name;
  // The greatest element; NaN if any element is NaN.
  float (*max)(const float* row, int size);
  // The first index in [begin, size) whose element is equal to / greater than `value`, or size.
  int (*find_equal)(const float* row, int begin, int size, float value);
  int (*find_greater)(const float* row, int begin, int size, float value);
  // The sum of w(i) = exp((row[i] - max) * scale), whose arguments are all <= 0, without those
  // below `min`. block_sums (or null) gets the sum of each kRowBlock elements.
  double (*sum_exp)(const float* row, int size, float max, float scale, float min,
                    double* block_sums);
  // weights[i] = w(i), or 0 below `min`.
  void (*exp_weights)(const float* row, int size, float max, float scale, float min,
                      float* weights);
};

extern const RowKernels kRowKernelsBaseline;
#if defined(__x86_64__)
extern const RowKernels kRowKernelsAvx2, kRowKernelsAvx512;
#endif

// The widest that this processor runs.
const RowKernels& BestRowKernels();

}  // namespace staffel
