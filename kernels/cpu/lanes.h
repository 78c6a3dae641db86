// What all kernel bodies share. The translation unit of a level includes its vector vocabulary
// (simd_*.h) before any of them.
#pragma once

#include "kernels/cpu/layout.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

inline constexpr int kParts = kGroup / kLanes;
inline constexpr int kLine = 64;               // bytes of an operand of 16 outputs
inline constexpr int kPartBytes = 4 * kLanes;  // of a line

// Calls f(i, lanes) for i = 0, kLanes, ..: whole vectors (lanes = kLanes), then the rest.
template <class Fn>
STAFFEL_INLINE void ForEachVector(int count, Fn&& f) {
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) f(i, kLanes);
  if (i < count) f(i, count - i);
}
STAFFEL_INLINE F32 LoadLanes(const float* p, int lanes) {
  return lanes == kLanes ? Load(p) : LoadFirst(p, lanes);
}
STAFFEL_INLINE void StoreLanes(float* p, int lanes, F32 v) {
  if (lanes == kLanes) {
    Store(p, v);
  } else {
    StoreFirst(p, lanes, v);
  }
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL
