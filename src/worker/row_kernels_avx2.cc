// Row kernels for AVX2.
namespace staffel {
namespace {
constexpr int kWidth = 8;
}
}  // namespace staffel

#include "worker/row_kernels_body.h"

namespace staffel {
const RowKernels kRowKernelsAvx2 = Kernels("avx2");
}  // namespace staffel
