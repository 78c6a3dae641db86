// Row kernels for the instruction set of the build.
namespace staffel {
namespace {
constexpr int kWidth = 4;
}
}  // namespace staffel

#include "worker/row_kernels_body.h"

namespace staffel {
const RowKernels kRowKernelsBaseline = Kernels("baseline");
}  // namespace staffel
