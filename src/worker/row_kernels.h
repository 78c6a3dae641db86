// The loops over a row of logits, once per instruction set (one translation unit each around
// row_kernels_body.h). All give the same bits: 16 lanes, added in one order, without fused
// multiply-adds. Pure.
#pragma once

namespace staffel {

struct RowKernels {
  const char* name;
  // The greatest element; NaN if any element is NaN.
  float (*max)(const float* row, int size);
  // The first index in [begin, size) whose element is equal to / greater than `value`, or size.
  int (*find_equal)(const float* row, int begin, int size, float value);
  int (*find_greater)(const float* row, int begin, int size, float value);
  // The sum of exp((row[i] - max) * scale), all of whose arguments are <= 0.
  double (*sum_exp)(const float* row, int size, float max, float scale);
  // The same; weights[i] is the summand, or 0 where it is below `min`.
  double (*exp_weights)(const float* row, int size, float max, float scale, float min,
                        float* weights);
};

extern const RowKernels kRowKernelsBaseline;
#if defined(__x86_64__)
extern const RowKernels kRowKernelsAvx2, kRowKernelsAvx512;
#endif

// The widest that this processor runs.
const RowKernels& BestRowKernels();

}  // namespace staffel
