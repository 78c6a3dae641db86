// What the machine can do at most, measured in the same run as the kernels (a shared host drifts by
// tens of percent within minutes). One thread.
#pragma once

#include <cstdint>

namespace staffel::bench {

double NowSeconds();
// int8 multiply-adds and bf16 (f32 where the machine has no bf16 dot) multiply-adds, 1e9
// operations a second, a multiply and an addition counting as two.
double Int8PeakGops();
double FloatPeakGflops();
// One pass of loads over the bytes, GB/s.
double ReadGbps(const uint8_t* data, int64_t bytes);

}  // namespace staffel::bench
