#include "benchmarks/kernels/limits.h"

#include <immintrin.h>

#include <chrono>

namespace staffel::bench {
namespace {

// Twelve independent sums hide the latency of any of these instructions.
#define STAFFEL_TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define STAFFEL_CLOBBERS                                                                   \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13"

constexpr int kRounds = 200000;

void Vnni512() {
#define X(j) "vpdpbusd %%zmm30,%%zmm31,%%zmm" #j "\n\t"
  for (int i = 0; i < kRounds; i++) asm volatile(STAFFEL_TWELVE(X)::: STAFFEL_CLOBBERS);
#undef X
}
void Bf16Dot512() {
#define X(j) "vdpbf16ps %%zmm30,%%zmm31,%%zmm" #j "\n\t"
  for (int i = 0; i < kRounds; i++) asm volatile(STAFFEL_TWELVE(X)::: STAFFEL_CLOBBERS);
#undef X
}
void Fma512() {
#define X(j) "vfmadd231ps %%zmm30,%%zmm31,%%zmm" #j "\n\t"
  for (int i = 0; i < kRounds; i++) asm volatile(STAFFEL_TWELVE(X)::: STAFFEL_CLOBBERS);
#undef X
}
// The three instructions that AVX2 needs for a dot of bytes.
void Maddubs256() {
#define X(j)                               \
  "vpmaddubsw %%ymm14,%%ymm15,%%ymm12\n\t" \
  "vpmaddwd %%ymm12,%%ymm15,%%ymm13\n\t"   \
  "vpaddd %%ymm13,%%ymm" #j ",%%ymm" #j "\n\t"
  for (int i = 0; i < kRounds; i++) asm volatile(STAFFEL_TWELVE(X)::: STAFFEL_CLOBBERS);
#undef X
}
void Fma256() {
#define X(j) "vfmadd231ps %%ymm14,%%ymm15,%%ymm" #j "\n\t"
  for (int i = 0; i < kRounds; i++) asm volatile(STAFFEL_TWELVE(X)::: STAFFEL_CLOBBERS);
#undef X
}

double Giga(void (*loop)(), double operations) {
  const double begin = NowSeconds();
  loop();
  return kRounds * 12 * operations / (NowSeconds() - begin) / 1e9;
}

__attribute__((target("avx2"))) int64_t SumOfLoads(const uint8_t* data, int64_t bytes) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (int64_t i = 0; i + 128 <= bytes; i += 128) {
    const auto* p = reinterpret_cast<const __m256i*>(data + i);
    a = _mm256_xor_si256(a, _mm256_loadu_si256(p));
    b = _mm256_xor_si256(b, _mm256_loadu_si256(p + 1));
    c = _mm256_xor_si256(c, _mm256_loadu_si256(p + 2));
    d = _mm256_xor_si256(d, _mm256_loadu_si256(p + 3));
  }
  return _mm256_extract_epi64(_mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)), 0);
}

}  // namespace

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Int8PeakGops() {
  if (__builtin_cpu_supports("avx512vnni")) return Giga(Vnni512, 128);
  return Giga(Maddubs256, 64);
}

double FloatPeakGflops() {
  if (__builtin_cpu_supports("avx512bf16")) return Giga(Bf16Dot512, 64);
  if (__builtin_cpu_supports("avx512f")) return Giga(Fma512, 32);
  return Giga(Fma256, 16);
}

double ReadGbps(const uint8_t* data, int64_t bytes) {
  const double begin = NowSeconds();
  const int64_t sum = SumOfLoads(data, bytes);
  asm volatile("" ::"r"(sum));  // the sum is wanted
  return static_cast<double>(bytes) / (NowSeconds() - begin) / 1e9;
}

}  // namespace staffel::bench
