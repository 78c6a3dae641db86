// The table of one level; included last by its translation unit, which names the level:
//   STAFFEL_CPU_LEVEL      namespace
#pragma once

#include "kernels/cpu/attention.h"
#include "kernels/cpu/levels.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/rope_store.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

inline constexpr CpuKernels MakeTable(CpuLevel level, const char* name) {
  CpuKernels t{};
  t.level = level;
  t.name = name;
  t.pack = PackGroups;
  t.unpack_row = UnpackRow;
  t.decode_row = DecodeRow;
  t.prepare = Prepare;
  t.matmul = Matmul;
  t.gated_matmul = GatedMatmul;
  t.rope_store = RopeStore;
  t.attention = Attention;
  t.add = AddTo;
  t.softmax_stats = StatsOf;
  t.argmax = ArgMax;
  t.top_k = TopK;
  return t;
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL
