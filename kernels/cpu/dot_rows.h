// Dots of `count` weight operands with R rows, for levels whose DotU8 takes any number of steps.
#pragma once

#include "kernels/cpu/layout.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

template <int kMaxCode, int MT, int R>
STAFFEL_INLINE void DotRows(const Bytes* w, int count, const uint8_t* q, I32* dot) {
  STAFFEL_UNROLL(8)
  for (int j = 0; j < count; j++) {
    STAFFEL_UNROLL(8)
    for (int r = 0; r < R; r++) dot[r] = DotU8(dot[r], w[j], Broadcast4(q + (j * MT + r) * 4));
  }
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL
