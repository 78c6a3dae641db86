// Stored rows to tiles and back, the same for every level (the work is moving dwords, one compiled
// copy will do). Meanings are told at CpuKernels.
#pragma once

#include "kernels/api/cpu_kernels.h"

namespace staffel::kernels {

void PackGroups(const WeightPart& part, const PackedMatrix& matrix, int group_begin, int group_end);
void UnpackRow(const PackedMatrix& matrix, int row, float scale, float* out);
void DecodeRow(const WeightPart& part, int row, float scale, float* out);

}  // namespace staffel::kernels
