// Row kernels for AVX-512F.
namespace staffel {
namespace {
constexpr int kWidth = 16;
}
}  // namespace staffel

#include "worker/row_kernels_body.h"

namespace staffel {
const RowKernels kRowKernelsAvx512 = Kernels("avx512");
}  // namespace staffel
